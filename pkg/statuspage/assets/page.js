"use strict";

// What of a long list is shown.
const MOST_MOVES = 12;
const COLOURS = 12;
const LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

const byId = (id) => document.getElementById(id);

// A replica keeps its letter and colour for as long as it is in the view. A new one gets the first that are free: else a
// page that is open during many rollouts would run out of letters.
const places = new Map();
function placeOf(replica) {
  if (!places.has(replica)) {
    const taken = new Set(places.values());
    let place = 0;
    while (taken.has(place)) place++;
    places.set(replica, place);
  }
  return places.get(replica);
}
function givePlaces(fleet) {
  const replicas = fleet.replicas || [], there = new Set(replicas.map((r) => r.name));
  for (const shard of fleet.shards || []) there.add(shard.replica); // of many replicas, some aren't listed
  for (const replica of places.keys()) {
    if (!there.has(replica)) places.delete(replica);
  }
  // Letters go by name, in the order of the replicas, not in that of the blocks.
  replicas.filter((r) => r.state === "live" || r.shards).forEach((r) => placeOf(r.name));
}
const letterOf = (replica) => LETTERS[placeOf(replica)] || "#";
const colourOf = (replica) => "k" + (placeOf(replica) % COLOURS);

// Names come from records that others may write: nothing in them turns the direction of text, hides, or fills the page.
const LONGEST = 1024;
const fit = (text) => {
  text = String(text);
  return (text.length > LONGEST ? text.slice(0, LONGEST) + "…" : text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd");
};

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = fit(text);
  return element;
}

function age(seconds) {
  if (seconds < 0) seconds = 0;
  if (seconds < 10) return seconds.toFixed(1) + " s";
  if (seconds < 120) return Math.floor(seconds) + " s";
  if (seconds < 7200) return Math.floor(seconds / 60) + " min";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " d";
}

function wait(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return (seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0) + " ms";
  return age(seconds);
}

const plural = (n, noun) => n + " " + noun + (n === 1 ? "" : "s");

function setText(element, text) {
  text = fit(text);
  if (element.textContent !== text) element.textContent = text; // unchanged text isn't read out again
}

function showHead(view) {
  const { fleet } = view, verdict = byId("verdict"), t = fleet.totals;
  setText(verdict, fleet.healthy ? "Healthy" : "Something is wrong");
  verdict.className = "verdict " + (fleet.healthy ? "good" : "bad");
  document.title = (fleet.healthy ? "" : "! ") + "Tenure";
  setText(byId("totals"), [plural(t.replicas, "replica"), plural(t.shards, "shard") + " in " + plural(t.clusters, "cluster"),
    plural(t.objects, "object"), t.held < t.shards ? t.held + " served" : "all served"].join(", "));
  setText(byId("by"), view.by);
}

function showFindings(findings, left) {
  byId("findings-section").hidden = !findings || findings.length === 0;
  byId("findings").replaceChildren(...(findings || []).map((f) => {
    const item = make("li", f.severity);
    item.append(make("strong", f.severity === "wrong" ? "bad" : "warn", f.severity === "wrong" ? "Wrong:" : "Note:"), fit(f.what));
    const hints = [f.do, f.alert && f.severity === "wrong" ? "Runbook: " + f.alert : ""].filter(Boolean).join(". ");
    if (hints) item.append(make("span", "do", hints));
    return item;
  }));
  if (left) byId("findings").append(make("li", "quiet", left + " more; tenure status has all."));
}

function describe(shard) {
  const who = !shard.replica ? "nobody holds it" : shard.served ? "held by " + shard.replica : "held by " + shard.holder + ", which is dead or quiet";
  const parts = ["shard " + shard.id, who, "epoch " + shard.epoch, plural(shard.objects, "object"), "slots " + shard.slots];
  if (shard.moving) parts.push("on its way to " + shard.assignee);
  if (shard.heldForSeconds) parts.push("since " + age(shard.heldForSeconds));
  return parts.join(", ");
}

// Blocks stay the same elements from view to view, so that keyboard focus and screen readers stay where they are.
const blocks = new Map();

function showBlock(block, shard) {
  const served = shard.served ? shard.replica : "";
  const wasEpoch = block.dataset.epoch;
  block.className = [served ? colourOf(served) : "unserved", shard.moving ? "moving" : "",
    wasEpoch && wasEpoch !== String(shard.epoch) ? "fresh" : ""].join(" ").trim();
  if (wasEpoch === String(shard.epoch) && block.dataset.fresh > Date.now()) block.classList.add("fresh");
  if (block.classList.contains("fresh") && wasEpoch !== String(shard.epoch)) block.dataset.fresh = Date.now() + 2000;
  block.dataset.epoch = shard.epoch;
  setText(block, served ? letterOf(served) : "!");
  const text = fit(describe(shard));
  block.dataset.text = text;
  block.setAttribute("aria-label", text);
}

function newCluster(name) {
  const row = make("div", "cluster");
  row.dataset.cluster = name;
  const title = make("h3", "", name);
  title.append(make("small"));
  const strip = make("ul", "strip");
  strip.setAttribute("aria-label", "shards of " + fit(name));
  row.append(title, strip);
  return row;
}

// answersOf is how a cluster answers the replica that it answers worst.
function answersOf(cluster) { return cluster.state + " (" + cluster.cause + ")"; }

function showCluster(row, cluster, shards) {
  const troubled = cluster.reason && cluster.reason !== "Usable";
  const small = row.querySelector("small");
  setText(small, (cluster.removed ? "removed" : cluster.held + " of " + cluster.shards + " served") + ", " + plural(cluster.objects, "object") +
    (troubled ? ", " + cluster.reason : cluster.state ? ", " + answersOf(cluster) : ""));
  small.className = troubled ? "bad" : "";
  const strip = row.querySelector(".strip");
  const wanted = (cluster.removed ? [] : shards).map((shard) => { // what is removed is held by nobody, as it should be
    let item = blocks.get(shard.id);
    if (!item) {
      item = make("li");
      const block = make("button");
      block.type = "button";
      block.tabIndex = -1;
      item.append(block);
      const prefix = shard.id.slice(shard.id.lastIndexOf("/") + 1).split("@")[0]; // what follows @ is the generation
      item.style.setProperty("--size", String(256 >> prefix.length));
      blocks.set(shard.id, item);
    }
    showBlock(item.firstChild, shard);
    return item;
  });
  const there = [...strip.children];
  if (there.length !== wanted.length || there.some((item, i) => item !== wanted[i])) strip.replaceChildren(...wanted);
  // One tab stop a line.
  if (wanted.length && !strip.querySelector('[tabindex="0"]')) wanted[0].firstChild.tabIndex = 0;
}

function showMap(view) {
  const map = byId("map"), byCluster = new Map(), focused = document.activeElement;
  for (const shard of view.fleet.shards || []) {
    if (!byCluster.has(shard.cluster)) byCluster.set(shard.cluster, []);
    byCluster.get(shard.cluster).push(shard);
  }
  const rows = new Map([...map.querySelectorAll(".cluster")].map((row) => [row.dataset.cluster, row]));
  const wanted = (view.fleet.clusters || []).map((cluster) => {
    const row = rows.get(cluster.name) || newCluster(cluster.name);
    showCluster(row, cluster, byCluster.get(cluster.name) || []);
    return row;
  });
  const there = [...map.children];
  if (there.length !== wanted.length || there.some((row, i) => row !== wanted[i])) map.replaceChildren(...wanted);
  if (focused !== document.activeElement && map.contains(focused)) { // an element that is moved loses the focus
    focused.focus({ preventScroll: true });
  }
  for (const [id, item] of blocks) {
    if (!item.isConnected) blocks.delete(id);
  }
  if (wanted.length === 0) map.textContent = "No workload clusters.";
  const left = [view.leftClusters && plural(view.leftClusters, "cluster"), view.left && plural(view.left, "shard")].filter(Boolean);
  setText(byId("map-left"), left.length ? left.join(" and ") + " more; tenure status -o json has all." : "");
  const text = document.activeElement?.dataset.text;
  if (text) setText(byId("detail"), text);
}

function showReplicas(fleet, left) {
  byId("replicas").replaceChildren(...(fleet.replicas || []).map((r) => {
    const row = make("tr");
    const name = make("th");
    name.scope = "row";
    const key = make("span", "key " + (r.shards || r.state === "live" ? colourOf(r.name) : ""), letterOf(r.name));
    key.setAttribute("aria-hidden", "true");
    name.append(key, fit(r.incarnation) + (r.coordinator ? " (coordinates)" : ""));
    const good = { live: "good", leaving: "warn" }[r.state] || "bad";
    const renewed = r.state === "missing" ? "–" : age(r.renewedAgoSeconds) + " ago of " + age(r.leaseDurationSeconds) + (r.watched ? "" : " (its clock)");
    row.append(name, make("td", good, r.state), make("td", "n", renewed), make("td", "n", r.shards), make("td", "n", r.objects),
      make("td", "n", r.load.toFixed(2)), make("td", "", r.build || ""));
    return row;
  }));
  if (left) byId("replicas").append(emptyRow(7, left + " more; tenure status -o json has all."));
}

let lastChange = null;

function showMoves(fleet, left = 0) {
  const now = Date.parse(fleet.taken), items = [];
  const add = (className, what, when) => {
    const item = make("li", className);
    item.append(make("span", "what", what), make("span", "when", when));
    items.push(item);
  };
  for (const m of fleet.moves || []) {
    add("moving", m.shard + ": " + m.from + " → " + m.to + ", " + m.stage, m.askedAgoSeconds < 0 ? "under way" : "for " + age(m.askedAgoSeconds));
  }
  const recent = fleet.recent || [];
  for (const c of recent) {
    add(c.kind === "Crash" ? "warn" : "", c.shard + ": " + (c.from || "nobody") + " → " + (c.to || "nobody") + ", " + c.kind + ", epoch " + c.epoch,
      age((now - Date.parse(c.at)) / 1000) + " ago");
  }
  byId("moves").replaceChildren(...(items.length ? items.slice(0, MOST_MOVES) : [make("li", "quiet", "None yet.")]));
  left += Math.max(0, (fleet.moves || []).length - MOST_MOVES); // of what is under way, not of what is over
  if (left) byId("moves").append(make("li", "quiet", left + " more under way; tenure status -o json has all."));
  const news = lastChange === null ? [] : recent.filter((c) => Date.parse(c.at) > lastChange);
  lastChange = Math.max(lastChange, ...recent.map((c) => Date.parse(c.at))); // null counts as 0
  if (news.length) setText(byId("said"), plural(news.length, "shard") + " changed hands; the latest, " + news[0].shard + ", went to " + (news[0].to || "nobody"));
}

function showQueues(queues) {
  byId("queues").replaceChildren(...(queues && queues.length ? queues.map((q) => {
    const row = make("tr"), name = make("th", "", q.controller);
    name.scope = "row";
    row.append(name, make("td", "n", q.waiting), make("td", "n", wait(q.oldestSeconds || null)), make("td", "n", q.reconciles),
      make("td", "n", wait(q.p50Seconds)), make("td", "n", wait(q.p99Seconds)));
    return row;
  }) : [emptyRow(6, "Nothing measured yet.")]));
}

function emptyRow(columns, text) {
  const row = make("tr"), cell = make("td", "quiet", text);
  cell.colSpan = columns;
  row.append(cell);
  return row;
}

// waitsOf is how a cluster answers and what waits there, the namespaces that wait longest first.
function waitsOf(cluster) {
  const parts = cluster.state ? [answersOf(cluster)] : [], waits = cluster.waits || {};
  if (cluster.stuck) parts.push(plural(cluster.stuck, "shard") + " held and not served");
  if (waits.ready) parts.push(plural(waits.ready, "key") + " ready, the oldest for " + Math.round(waits.waitSeconds || 0) + " s");
  if (waits.waitingWrites) parts.push(plural(waits.waitingWrites, "write") + " held up by limits");
  for (const n of waits.namespaces || []) parts.push(n.namespace + " " + Math.round(n.waitSeconds) + " s");
  return parts.join(", ");
}

function showUnusable(clusters, left) {
  const bad = (clusters || []).filter((c) => c.reason && c.reason !== "Usable");
  const slow = (clusters || []).filter((c) => !bad.includes(c) && (c.state || c.waits || c.stuck));
  const rows = bad.map((c) => make("li", "bad", fit(c.name) + ": " + c.reason)).concat(slow.map((c) => make("li", "", fit(c.name) + ": " + waitsOf(c))));
  byId("unusable").replaceChildren(...(rows.length ? rows : [make("li", "quiet", left ? "None of those shown." : "None, as this replica sees it.")]));
}

function show(view) {
  givePlaces(view.fleet);
  showHead(view);
  showFindings(view.fleet.findings, view.leftFindings);
  showMap(view);
  showReplicas(view.fleet, view.leftReplicas);
  showMoves(view.fleet, view.leftMoves);
  showQueues(view.queues);
  showUnusable(view.fleet.clusters, view.leftClusters);
}

// Arrow keys, Home and End go along a line of blocks.
byId("map").addEventListener("keydown", (event) => {
  const strip = event.target.closest(".strip");
  if (!strip) return;
  const all = [...strip.querySelectorAll("button")], at = all.indexOf(event.target);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined || !all[to]) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  all[to].tabIndex = 0;
  all[to].focus();
});
for (const kind of ["focusin", "pointerover", "click"]) {
  byId("map").addEventListener(kind, (event) => {
    if (event.target.dataset.text) setText(byId("detail"), event.target.dataset.text);
  });
}

const link = byId("link");

// A network or a replica that falls silent closes no connection, so the page has to notice that by itself. Between two
// events are at most ten seconds, and the few that it takes to make one.
const SILENCE_SECONDS = 30;

let seen = ""; // when the last view came, by this browser's clock

function showOld(why) {
  link.className = "link bad";
  setText(link, why + (seen ? "; what you see is old, from " + seen : ""));
  byId("verdict").className = "verdict quiet";
  setText(byId("verdict"), "Unknown");
  document.title = "? Tenure";
}

function follow() {
  const stream = new EventSource("status/events");
  let silence;
  const again = (afterSeconds) => {
    clearTimeout(silence);
    stream.close();
    setTimeout(follow, afterSeconds * 1000);
  };
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => {
      showOld("Nothing came for " + SILENCE_SECONDS + " s, trying again");
      again(0);
    }, SILENCE_SECONDS * 1000);
  };
  heard();
  stream.addEventListener("view", (event) => {
    const view = JSON.parse(event.data);
    show(view);
    heard(); // last: a view that can't be shown leaves the old one on the page
    seen = new Date().toLocaleTimeString();
    link.className = "link";
    setText(link, "Live, as " + view.by + " sees it");
  });
  stream.addEventListener("trouble", (event) => {
    heard();
    showOld("This replica can't tell: " + event.data);
  });
  stream.addEventListener("over", () => again(0));
  stream.addEventListener("error", () => {
    showOld("Connection lost, trying again");
    // Browsers try again by themselves after a broken connection, but not after an answer that is an error.
    if (stream.readyState === EventSource.CLOSED) again(3);
  });
}
follow();
