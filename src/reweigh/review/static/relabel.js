// Choosing a label: a key for each of a few classes, a part of the name among many, or a number.

const dialog = document.getElementById("relabel");
const typed = document.getElementById("typed");
const number = document.getElementById("number");
const MOST = 50; // matches shown

let chosen = () => {};
let labels = null; // of many classes: [label, as shown], fetched once
let active = 0;

export async function openChooser(card, choose) {
  chosen = (label) => {
    dialog.close();
    choose(label);
  };
  if (number) number.value = card.suggested ?? card.given;
  for (const button of dialog.querySelectorAll("[data-label]")) mark(button, button.dataset.label, card);
  dialog.showModal();
  [...dialog.querySelectorAll("button[data-label]")].find((each) => each.dataset.label === card.suggested)?.focus();
  if (number) number.select();
  if (!typed) return;
  typed.value = "";
  labels ??= await (await fetch("/classes")).json();
  dialog.card = { given: card.given, suggested: card.suggested };
  list();
}

function mark(element, label, card) {
  element.querySelector("small").textContent =
    label === card.suggested ? "suggested" : label === card.given ? "given" : "";
}

// ---- a few classes

dialog.addEventListener("keydown", (event) => {
  if (typed || number || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const button = [...dialog.querySelectorAll("[data-key]")].find((each) => each.dataset.key === event.key);
  if (!button) return;
  event.preventDefault();
  chosen(button.dataset.label);
});

dialog.addEventListener("click", (event) => {
  const choice = event.target.closest("[data-label]");
  if (choice) chosen(choice.dataset.label);
});

// ---- many: the suggestion first, then names that begin with what was typed, then those that hold it

function matches() {
  const wanted = typed.value.trim().toLowerCase();
  const card = dialog.card;
  if (!wanted) {
    const first = labels.filter(([label]) => label === card.suggested);
    return [...first, ...labels.filter(([label]) => label !== card.suggested)].slice(0, MOST);
  }
  const holding = labels.filter(([label]) => label.toLowerCase().includes(wanted));
  const rank = ([label]) => (label.toLowerCase() === wanted ? 0 : label.toLowerCase().startsWith(wanted) ? 1 : 2);
  return holding.sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
}

function list() {
  active = 0;
  const box = document.getElementById("matches");
  box.replaceChildren(...matches().map(([label, shown], place) => {
    const option = document.createElement("li");
    option.id = `match-${place}`;
    option.role = "option";
    option.dataset.label = label;
    const name = document.createElement("bdi");
    name.textContent = shown;
    option.append(name, " ", document.createElement("small"));
    mark(option, label, dialog.card);
    return option;
  }));
  if (!box.children.length) {
    const none = document.createElement("li");
    none.className = "none";
    none.textContent = "No label has this in it.";
    box.append(none);
  }
  point();
}

function point() {
  const options = [...dialog.querySelectorAll("[role=option]")];
  options.forEach((option, place) => option.setAttribute("aria-selected", place === active));
  typed.setAttribute("aria-activedescendant", options[active]?.id ?? "");
  options[active]?.scrollIntoView({ block: "nearest" });
}

typed?.addEventListener("input", list);
typed?.addEventListener("keydown", (event) => {
  const options = dialog.querySelectorAll("[role=option]");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && options.length) {
    event.preventDefault();
    active = (active + step + options.length) % options.length;
    point();
  } else if (event.key === "Enter" && options[active]) {
    event.preventDefault();
    chosen(options[active].dataset.label);
  }
});

// ---- a number

number?.form.addEventListener("submit", (event) => {
  event.preventDefault();
  chosen(number.value.trim());
});
