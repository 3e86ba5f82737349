/** Fields for a policy's options, as the server describes them. */

import { el } from "./dom.js";
import { t } from "./words.js";

/**
 * A list of labelled fields. An option that nobody changed is not sent, so the policy's own setting holds. One that
 * belongs to other samplers than the chosen one is hidden, and not sent either.
 *
 * @param {Object} policy As `/api/offers` describes it: `options: [{name, kind, choices, min, max, default, help, samplers}]`.
 * @param {Object} chosen Earlier choices by name.
 * @param {(name: string, value: any) => void} changed Called with each valid change; `undefined` restores the default.
 */
export function optionFields(policy, chosen, changed) {
  const offered = policy.options ?? [];
  if (!offered.length) return el("p", { class: "hint", text: t("column.no-options") });
  const made = new Map();
  let sampler = chosen.sampler ?? offered.find(({ name }) => name === "sampler")?.default;
  const suits = ({ samplers }) => !samplers || samplers.includes(sampler);
  const make = (option, value) => {
    const node = field(policy, option, value, (name, now) => {
      changed(name, now);
      if (name === "sampler") turn(now);
    });
    node.hidden = !suits(option);
    made.set(option, node);
    return node;
  };
  const turn = (now) => {
    sampler = now;
    for (const [option, node] of made) {
      if (node.hidden !== suits(option)) continue;
      changed(option.name, undefined);
      node.replaceWith(make(option));
    }
  };
  const fields = (options) => el("div", { class: "options" }, ...options.map((option) => make(option, chosen[option.name])));
  const [usual, rare] = [offered.filter((option) => !option.advanced), offered.filter((option) => option.advanced)];
  const more = rare.length ? el("details", {}, el("summary", { text: t("column.more") }), fields(rare)) : null;
  return el("div", {}, fields(usual), more);
}

function field(policy, option, value, changed) {
  const id = `option-${policy.id}-${option.name}`.replace(/[^\w-]/g, "_");
  const standard = option.default ?? "";
  const wrong = el("p", { class: "error", id: `${id}-error`, role: "alert" });
  const labels = { id, "aria-describedby": `${id}-help ${id}-error` };
  let input;
  if (option.kind === "choice") {
    const choices = option.choices.map((choice) => el("option", { value: String(choice), text: String(choice) }));
    input = el("select", labels, ...choices);
    input.value = String(value ?? standard);
  } else if (option.kind === "bool") {
    input = el("input", { ...labels, type: "checkbox", checked: Boolean(value ?? standard) });
  } else {
    input = el("input", {
      ...labels, type: "number", step: option.kind === "int" ? "1" : "any", min: option.min, max: option.max,
      value: value ?? standard, placeholder: standard === "" ? t("column.default") : String(standard),
    });
  }
  input.addEventListener("change", () => {
    wrong.textContent = input.validationMessage;
    input.setAttribute("aria-invalid", String(!input.checkValidity()));
    if (input.checkValidity()) changed(option.name, read(option, input));
  });
  return el("div", { class: `field kind-${option.kind}` },
    el("label", { for: id, lang: "en", text: option.label ?? option.name.replaceAll("_", " ") }), input,
    el("p", { class: "hint", id: `${id}-help`, lang: "en", text: option.help ?? "" }), wrong);
}

function read(option, input) {
  if (option.kind === "bool") return input.checked;
  if (option.kind === "choice") return option.choices.find((choice) => String(choice) === input.value);
  return input.value === "" ? undefined : Number(input.value);
}
