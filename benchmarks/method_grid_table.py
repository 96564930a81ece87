FIELDS = ("data", "noise", "rate", "clean", "seed", "method")


def table(rows):
    return ""
