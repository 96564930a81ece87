// On to the bare address: the token stays neither in the address bar nor in the history.
location.replace("/");
