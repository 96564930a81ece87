// The page's behaviour: keys and buttons ask the server, whose answers replace the card.
// Nothing is decided here, and no text of the data is ever turned into markup here.

import { openChooser } from "./relabel.js";

const byId = (id) => document.getElementById(id);
const shown = () => document.querySelector("#card article");
const narrow = matchMedia("(max-width: 56rem)");
const filter = byId("filter");
const made = []; // rows and groups decided in this tab, for its own undo
let busy = false;
let ahead = null; // the image a decision will lead to

// ---- talking to the server

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Run `reweigh review` again; every decision you saw confirmed is on the disk.");
  }
  if (response.status === 403) {
    throw new Error("This page is of an earlier start. Open the address that the terminal shows now.");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server failed (${response.status}); see the terminal.`);
  return answer;
}

// One request at a time: a key pressed while the next card is on its way must not decide about a
// card nobody has seen.
async function once(work) {
  if (busy) return;
  busy = true;
  byId("card").setAttribute("aria-busy", "true");
  try {
    await work();
    trouble("");
  } catch (error) {
    trouble(error.message);
  } finally {
    busy = false;
    byId("card").removeAttribute("aria-busy");
  }
}

function trouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

function say(text) {
  byId("said").textContent = text;
}

function show(answer) {
  if (answer.card !== undefined) {
    const focused = document.activeElement?.closest("#card [data-do]")?.dataset.do;
    byId("card").innerHTML = answer.card;
    const again = focused && byId("card").querySelector(`[data-do="${focused}"]`);
    if (focused) (again && !again.disabled ? again : byId("card")).focus({ preventScroll: true });
    if (narrow.matches) scrollTo(0, 0);
    remember(answer);
    fetchAhead();
  }
  if (answer.progress !== undefined) byId("progress").innerHTML = answer.progress;
  const card = shown()?.dataset;
  const next = card ? ` Now row ${card.row}, given ${card.given}, suggested ${card.suggested ?? "nothing"}.` : "";
  if (answer.said !== undefined) say(answer.said + (answer.card === undefined ? "" : next));
}

function fetchAhead() {
  const next = shown()?.dataset.ahead;
  if (!next) return;
  ahead = new Image(); // kept, or the browser would forget it
  ahead.src = next;
}

function remember(answer) {
  const query = new URLSearchParams(answer.query);
  if (answer.row !== null) query.set("row", answer.row);
  history.replaceState(null, "", query.size ? `/?${query}` : "/");
}

// ---- what one can do

const query = () => {
  const chosen = new URLSearchParams(new FormData(filter));
  for (const [name, value] of [...chosen]) if (!value.trim()) chosen.delete(name);
  return chosen;
};

const decide = (action, label = null) => once(async () => {
  const index = Number(shown().dataset.row);
  show(await ask("/decide", { index, action, label, query: String(query()) }));
  made.push({ index });
});

const listGroups = async () => {
  byId("listed").innerHTML = (await ask(`/groups?${query()}`)).groups;
};

const go = (row) => once(async () => {
  const wanted = query();
  if (row !== undefined) wanted.set("row", row);
  show(await ask(`/card?${wanted}`));
});

const choose = (label) => decide("relabel", label);

const actions = {
  accept: () => shown()?.dataset.suggested !== undefined && choose(shown().dataset.suggested),
  keep: () => shown() && decide("keep"),
  drop: () => shown() && decide("drop"),
  skip: () => shown() && decide("skip"),
  relabel: () => shown() && openChooser(shown().dataset, choose),
  previous: () => shown()?.dataset.previous && go(shown().dataset.previous),
  following: () => shown()?.dataset.following && go(shown().dataset.following),
  undo: () => once(async () => {
    const last = made.pop() ?? { index: null };
    show(await ask("/undo", { ...last, query: String(query()) }));
  }),
  groups: () => byId("groups") && once(async () => {
    await listGroups();
    byId("groups").showModal();
  }),
  group: (button) => once(async () => {
    const { action, given, suggested, source, count } = button.dataset;
    try {
      const answer = await ask("/group", { action, given, suggested, source: source ?? null, count: Number(count), query: String(query()) });
      show(answer);
      made.push({ group: answer.group });
      await listGroups();
    } catch (error) {
      byId("groups").close();
      throw error;
    }
  }),
  help: () => byId("help").showModal(),
  export: () => { byId("export").showModal(); document.querySelector('[data-do="write"]').focus(); },
  write: () => once(async () => {
    byId("export").setAttribute("aria-busy", "true");
    try {
      const answer = await ask("/export", { exact: byId("exact").checked });
      byId("exported").innerHTML = answer.exported;
    } catch (error) {
      byId("export").close();
      throw error;
    } finally {
      byId("export").removeAttribute("aria-busy");
    }
  }),
  close: (button) => button.closest("dialog").close(),
  clear: () => select(new URLSearchParams()),
  select: (button) => select(new URLSearchParams(button.dataset.query)),
  search: () => { byId("filters").open = true; filter.elements.search.select(); },
};

function select(wanted) {
  for (const field of filter.elements) {
    if (field.type === "checkbox") field.checked = wanted.has(field.name);
    else if (field.name) field.value = wanted.get(field.name) ?? (field.name === "show" ? "open" : "");
  }
  go();
}

// ---- keys, buttons, fields

const keys = {
  a: "accept", k: "keep", r: "relabel", d: "drop", s: "skip", u: "undo", e: "export", g: "groups",
  ArrowLeft: "previous", ArrowRight: "following", "/": "search", "?": "help",
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const name = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!name) return;
  event.preventDefault();
  if (event.repeat && !event.key.startsWith("Arrow")) return; // a key held down decides once
  actions[name]();
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) actions[button.dataset.do](button);
  else if (event.target.matches("dialog")) event.target.close(); // outside its content
});

filter.addEventListener("change", () => go());
filter.addEventListener("submit", (event) => {
  event.preventDefault();
  document.activeElement.blur();
  go();
});

// ---- what other tabs do

async function refresh() {
  if (document.hidden || busy) return;
  const row = shown()?.dataset.row;
  try {
    const wanted = query();
    wanted.set("row", row ?? "");
    const answer = await ask(`/progress?${wanted}`);
    if (busy || row !== shown()?.dataset.row) return;
    byId("progress").innerHTML = answer.progress;
    const state = byId("state");
    if (state) [state.textContent, state.hidden] = [answer.state ?? "", !answer.state];
    trouble("");
  } catch (error) {
    trouble(error.message);
  }
}

setInterval(refresh, 5000);
document.addEventListener("visibilitychange", refresh);
addEventListener("focus", refresh);

const unfold = () => { byId("filters").open = !narrow.matches; }; // a wide page has no handle for it
narrow.addEventListener("change", unfold);
unfold();
fetchAhead();
