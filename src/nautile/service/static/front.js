"use strict";
{
  const at = (id) => document.getElementById(id);
  const FINAL = new Set(["done", "failed", "cancelled", "dead"]);
  let job = null;
  let listening = null;
  let shown = 20;

  // An element with a text, never with markup.
  const element = (name, text = "", more = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    return Object.assign(made, more);
  };
  const show = (id, wanted = true) => {
    at(id).hidden = !wanted;
  };
  const duration = (seconds) => {
    const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
    const [factor, unit] = units.find(([f]) => seconds >= f) || units[3];
    return `${(seconds / factor).toPrecision(3)} ${unit}`;
  };
  const bytes = (count) => {
    const units = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
    const [factor, unit] = units.find(([f]) => count >= f) || units[3];
    return `${(count / factor).toPrecision(3)} ${unit}`;
  };

  // ---- what is wrong -------------------------------------------------------------------------

  const tell = (error) => {
    const problem = error.problem || {};
    const place = problem.line ? `line ${problem.line}, column ${problem.column}: ` : "";
    const quoted = problem.text
      ? `\n    ${problem.text}\n    ${" ".repeat(Math.max(0, problem.column - 1))}^`
      : "";
    at("problem").textContent = `${place}${error.message}${quoted}`;
    show("problem");
    if (error.status === 401) ask_token();
  };
  const clear = () => show("problem", false);
  const ask_token = () => {
    show("key");
    at("token").focus();
  };

  // ---- the form ------------------------------------------------------------------------------

  const sizes = (text) => {
    const found = {};
    for (const part of text.split(",").filter((p) => p.trim())) {
      const [name, value] = part.split("=");
      if (!/^\s*\d+\s*$/.test(value || "")) throw new Error(`sizes are NAME=NUMBER,...: not ${part}`);
      found[name.trim()] = Number(value);
    }
    return found;
  };

  const submission = () => {
    const asked = {
      text: at("text").value,
      target: at("target").value || "h200",
      numerics: at("numerics").value,
      compile: at("compile").checked,
      dims: sizes(at("dims").value),
    };
    const program = at("program").value.trim();
    return program ? { ...asked, program } : asked;
  };

  const submit = async (event) => {
    event.preventDefault();
    clear();
    at("submit").disabled = true;
    try {
      await open(await nautile.post("/v1/optimizations", submission()));
    } catch (error) {
      tell(error);
    } finally {
      at("submit").disabled = false;
    }
  };

  // ---- a job ---------------------------------------------------------------------------------

  const open = async (found) => {
    if (listening) listening.abort();
    listening = new AbortController();
    job = found;
    at("events").replaceChildren();
    for (const id of ["outcome", "explain", "page", "file"]) show(id, false);
    at("job-title").textContent = `Job ${job.program}`;
    show("job");
    at("job").focus();
    location.hash = `job=${job.id}`;
    state();
    const mine = listening.signal;
    await nautile.follow(job.links.events, (event) => happened(event), mine);
    if (mine.aborted) return;
    job = await nautile.get(job.links.self);
    state();
    list();
    if (job.state === "done") await outcome();
  };

  const happened = (event) => {
    const { time, ...rest } = event.data;
    const facts = rest.stage || (rest.error && rest.error.message) || rest.reason || "";
    const clock = new Date(time).toLocaleTimeString();
    at("events").append(element("li", `${clock}  ${event.kind} ${facts}`));
    job.state = { started: "running", stage: "running" }[event.kind] || event.kind;
    state(event.kind === "stage" ? rest.stage : "");
    return FINAL.has(event.kind);
  };

  const state = (stage = "") => {
    const where = job.state === "queued" && job.position ? `, place ${job.position}` : "";
    const error = job.error ? `: ${job.error.message}` : "";
    at("state").textContent = `${job.state}${where}${stage ? `: ${stage}` : ""}${error}`;
    at("state").dataset.state = job.state;
    show("cancel", !FINAL.has(job.state));
    show("explain", job.state === "done");
  };

  const outcome = async () => {
    const record = await nautile.get(job.links.result);
    const { chosen, baseline, certificate } = record;
    const facts = [
      ["predicted", `${duration(baseline.seconds)} → ${duration(chosen.seconds)}`],
      ["kernels", `${baseline.kernels} → ${chosen.kernels.length}`],
      ["gap to the bound", `${(100 * (chosen.gap || 0)).toFixed(2)}%`],
      ["certificate", `${certificate.verdict}, ${certificate.checks.length} checks`],
      ["key", record.key],
    ];
    at("facts").replaceChildren(
      ...facts.flatMap(([name, value]) => [element("dt", name), element("dd", value)]),
    );
    at("kernels").replaceChildren(...chosen.kernels.map(kernel));
    const { artifacts } = await nautile.get(job.links.artifacts);
    at("files").replaceChildren(...artifacts.map(file));
    show("outcome");
  };

  const kernel = (row) => {
    const tile = Object.entries(row.tile).map(([axis, size]) => `${axis}=${size}`);
    const made = document.createElement("tr");
    const moved = bytes(row.reads_bytes + row.writes_bytes);
    const cells = [row.name, row.outputs.join(", "), duration(row.seconds), moved, tile.join(" ")];
    made.append(...cells.map((text) => element("td", text)));
    return made;
  };

  const file = ({ path, bytes, href }) => {
    const line = document.createElement("li");
    const button = element("button", path, { type: "button", className: "link" });
    button.addEventListener("click", () => download(path, href));
    line.append(button, ` ${bytes} bytes`);
    return line;
  };

  const download = async (path, href) => {
    try {
      if (!/\.(cu|json)$/.test(path)) {
        at("file").textContent = `${path} is machine code: fetch ${href}`;
      } else {
        at("file").textContent = await nautile.text(href);
      }
      show("file");
      at("file").focus();
    } catch (error) {
      tell(error);
    }
  };

  const explain = async () => {
    const asked = job;
    at("explain").disabled = true;
    try {
      for (;;) {
        const found = await nautile.post(`${asked.links.self}/explanation`);
        if (asked.id !== job.id) return;
        if (found.href) {
          at("page").href = found.href;
          show("page");
          at("page").focus();
          at("state").textContent = "the explanation is ready";
          return;
        }
        if (found.error) throw new Error(found.error.message);
        at("state").textContent = `the explanation is being made (${found.state})`;
        await nautile.pause(1);
      }
    } catch (error) {
      tell(error);
    } finally {
      at("explain").disabled = false;
    }
  };

  const cancel = async () => {
    try {
      await nautile.remove(job.links.self);
    } catch (error) {
      tell(error);
    }
  };

  // ---- the queue -----------------------------------------------------------------------------

  const list = async () => {
    if (document.hidden) return;
    try {
      const queue = await nautile.get("/v1/queue");
      at("counts").textContent =
        `${queue.queued} queued, ${queue.running} running, ${queue.dead} dead; ` +
        `${queue.workers} worker${queue.workers === 1 ? "" : "s"}`;
      const found = await nautile.get(`/v1/optimizations?limit=${shown}`);
      at("jobs").replaceChildren(...found.optimizations.map(row));
      show("more", Boolean(found.next) && shown < 200);
    } catch (error) {
      if (error.status === 401) ask_token();
    }
  };

  const row = (found) => {
    const made = document.createElement("tr");
    const button = element("button", found.program, { type: "button", className: "link" });
    button.addEventListener("click", () => open(found).catch(tell));
    const name = document.createElement("td");
    name.append(button);
    const spent = found.finished
      ? ((Date.parse(found.finished) - Date.parse(found.created)) / 1000).toFixed(1)
      : "";
    const cells = [found.state, found.target, new Date(found.created).toLocaleString(), spent];
    made.append(name, ...cells.map((text) => element("td", text)));
    return made;
  };

  // ---- the beginning -------------------------------------------------------------------------

  const fill = async () => {
    const examples = await nautile.get("/v1/examples");
    const first = element("option", "an example", { value: "" });
    at("example").replaceChildren(
      first,
      ...examples.map((e) => element("option", e.name, { value: e.text })),
    );
    const { devices } = await nautile.get("/v1/devices");
    const options = devices.map((d) => element("option", d.name, { value: d.name }));
    at("target").replaceChildren(...options);
    if (devices.some((d) => d.name === "h200")) at("target").value = "h200";
  };

  const begin = async () => {
    try {
      await fill();
      await list();
      const asked = /^#job=(opt_[0-9a-f]{24})$/.exec(location.hash);
      if (asked) await open(await nautile.get(`/v1/optimizations/${asked[1]}`));
    } catch (error) {
      tell(error);
    }
  };

  at("form").addEventListener("submit", submit);
  at("example").addEventListener("change", () => {
    if (at("example").value) at("text").value = at("example").value;
  });
  at("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    nautile.token = at("token").value.trim();
    at("token").value = "";
    show("key", false);
    clear();
    begin();
  });
  at("forget").addEventListener("click", () => {
    nautile.token = "";
    location.reload();
  });
  at("cancel").addEventListener("click", cancel);
  at("explain").addEventListener("click", explain);
  at("more").addEventListener("click", () => {
    shown = Math.min(200, 2 * shown);
    list();
  });
  setInterval(list, 5000);
  begin();
}
