#!/usr/bin/env python3
"""Runs the mutants that `cargo mutants --list --json` has named; started by mutants.sh, docs in README.md.

All mutants are built at once: the body of each function becomes a `match` on the number of the active mutant, one arm
for each, and the last for the function as it is. So a mutant costs a run of the tests that reach its function, and no
build. What the compiler refuses is left out (unviable).
"""

import collections
import json
import os
import re
import resource
import subprocess
import sys
import time

TREE, LIST, OUT = sys.argv[1:4]
# Seconds: tests that take longer are left out.
LONGEST = float(os.environ.get("LONGEST", "inf"))
PACKAGE = os.path.join(TREE, "simulation/pure")
SWITCH = """
static REACHED: [std::sync::atomic::AtomicBool; 8192] = [const { std::sync::atomic::AtomicBool::new(false) }; 8192];
/// The number of the active mutant; notes which function asks.
pub(crate) fn mutant(function: usize) -> usize {
    static ACTIVE: std::sync::OnceLock<(usize, Option<std::fs::File>)> = std::sync::OnceLock::new();
    let (active, reached) = ACTIVE.get_or_init(|| {
        let file = std::env::var("REACHED").ok().map(|path| std::fs::File::create(path).unwrap());
        (std::env::var("MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0), file)
    });
    if let Some(mut file) = reached.as_ref()
        && !REACHED[function].swap(true, std::sync::atomic::Ordering::Relaxed)
    {
        std::io::Write::write_all(&mut file, format!("{function}\\n").as_bytes()).unwrap();
    }
    *active
}
"""
# A comment, a string, a character or a brace: enough to find the body of a function.
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|b?r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\u\{\w+\}|\\.|[^\\'])'|[{}]", re.DOTALL
)


class Source:
    def __init__(self, path):
        self.path = path
        with open(os.path.join(TREE, path), encoding="utf-8") as file:
            self.text = file.read()
        self.lines = [0]
        for line in self.text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def span(self, span):
        return tuple(self.lines[span[end]["line"] - 1] + span[end]["column"] - 1 for end in ("start", "end"))

    def body(self, start, end):
        """The first brace of the last block in a function: that of its body."""
        depth, body = 0, None
        for token in TOKEN.finditer(self.text, start, end):
            if token.group() == "{":
                body = token.start() if depth == 0 else body
                depth += 1
            elif token.group() == "}":
                depth -= 1
        return body


def switched(source, functions, left_out):
    """The text of a file with a `match` in each function; `functions` are (number, start, end, mutants)."""
    text = source.text
    for number, start, end, mutants in sorted(functions, key=lambda function: -function[1]):
        body = source.body(start, end)
        arms = []
        for mutant in mutants:
            if mutant["id"] not in left_out:
                first, last = mutant["at"]
                changed = source.text[body:first] + mutant["replacement"] + source.text[last:end]
                arms.append(f"\n/*M{mutant['id']}*/ {mutant['id']} => {changed}\n/*E*/")
        if arms:
            arms.append(f"\n_ => {source.text[body:end]}")
            text = f"{text[:body]}{{ match crate::protocol::mutant({number}) {{{''.join(arms)}\n}} }}{text[end:]}"
    return text


def write(sources, functions, left_out):
    where = {}
    for path, source in sources.items():
        text = switched(source, functions[path], left_out)
        active = None
        for number, line in enumerate(text.splitlines(), 1):
            if begin := re.match(r"/\*M(\d+)\*/", line):
                active = int(begin.group(1))
            elif line.startswith("/*E*/"):
                active = None
            where[path, number] = active
        if path == "src/protocol/mod.rs":
            text += SWITCH
        with open(os.path.join(TREE, path), "w", encoding="utf-8") as file:
            file.write(text)
    # Cargo does not see all changes of files outside of a package.
    os.utime(os.path.join(PACKAGE, "lib.rs"))
    return where


def cargo(*arguments):
    command = ["cargo", *arguments, "--quiet", "--message-format=json"]
    run = subprocess.run(command, cwd=PACKAGE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def refused(messages, where):
    """The mutants in which the compiler has found errors."""
    found, elsewhere = set(), []
    for message in messages:
        message = message.get("message")
        if not isinstance(message, dict) or message.get("level") != "error":
            continue
        ids = set()
        for span in message["spans"]:
            path = span["file_name"]
            ids.add(where.get((path[path.find("src/"):], span["line_start"])))
        ids.discard(None)
        found |= ids
        if not ids and message["spans"]:
            elsewhere.append(message["rendered"])
    return found, elsewhere


def limits(cpu):
    def apply():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    return apply


def run(binary, tests, mutant=0, cpu=60, reached=None):
    """Runs tests by their names, up to the first that fails. `ok`, `failed` or `timeout`, and the seconds."""
    environment = dict(
        os.environ, MUTANT=str(mutant), RUSTC_BOOTSTRAP="1", PROPTEST_DISABLE_FAILURE_PERSISTENCE="1",
        PROPTEST_MAX_SHRINK_ITERS="0", PROPTEST_RNG_SEED="1", RUST_BACKTRACE="0",
    )
    if reached:
        environment["REACHED"] = reached
    command = [binary, "--exact", "--test-threads=1", "-Zunstable-options", "--fail-fast", "-q", *tests]
    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    try:
        code = subprocess.run(
            command, env=environment, preexec_fn=limits(cpu), timeout=cpu * 20, cwd=PACKAGE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ).returncode
    except subprocess.TimeoutExpired:
        code = -24
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start
    return "ok" if code == 0 else "timeout" if code in (-24, -9) else "failed", seconds


def main():
    with open(LIST, encoding="utf-8") as file:
        mutants = json.load(file)
    sources, functions, left_out = {}, collections.defaultdict(list), {}
    of_file = collections.defaultdict(list)
    for number, mutant in enumerate(mutants, 1):
        mutant["id"] = number
        of_file[mutant["file"]].append(mutant)
    of_file.setdefault("src/protocol/mod.rs", [])
    count = 0
    for path, those in of_file.items():
        source = sources[path] = Source(path)
        spans = {source.span(mutant["function"]["span"]) for mutant in those if mutant["function"]}
        outer = {s for s in spans if not any(o != s and o[0] <= s[0] and s[1] <= o[1] for o in spans)}
        grouped = collections.defaultdict(list)
        for mutant in those:
            mutant["at"] = source.span(mutant["span"])
            around = [s for s in outer if s[0] <= mutant["at"][0] and mutant["at"][1] <= s[1]]
            body = source.body(*around[0]) if around else None
            head = source.text[around[0][0]:body] if around else "const"
            head = re.sub(r"//[^\n]*", "", head)
            if re.search(r"\bconst fn\b|->.*\bimpl\b", head, re.DOTALL) or not around or mutant["at"][0] < body:
                left_out[mutant["id"]] = "by itself"
            else:
                grouped[around[0]].append(mutant)
                mutant["reach"] = None
        for (start, end), inside in grouped.items():
            count += 1
            for mutant in inside:
                mutant["reach"] = count
            functions[path].append((count, start, end, inside))

    while True:
        where = write(sources, functions, left_out)
        code, messages = cargo("check", "--tests", "--offline")
        if code == 0:
            code, messages = cargo("test", "--lib", "--no-run", "--offline")
        if code == 0:
            break
        found, elsewhere = refused(messages, where)
        found -= left_out.keys()
        print(f"{len(found)} are refused by the compiler", flush=True)
        if not found:
            sys.exit("does not build:\n" + "\n".join(elsewhere))
        left_out.update((number, "unviable") for number in found)
    binary = next(m["executable"] for m in messages if m.get("executable"))

    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout
    tests = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    reaching, seconds, trace = collections.defaultdict(list), {}, os.path.join(OUT, "reached")
    for test in tests:
        open(trace, "w").close()
        outcome, seconds[test] = run(binary, [test], reached=trace, cpu=int(min(2 * LONGEST, 600)))
        if outcome == "timeout" and LONGEST < seconds[test]:
            print(f"left out, since it takes too long: {test}", flush=True)
        elif outcome != "ok":
            sys.exit(f"{test} fails without a mutant: {outcome}")
        with open(trace, encoding="utf-8") as file:
            for line in file:
                reaching[int(line)].append(test)
    print(f"{len(tests)} tests, {sum(seconds.values()):.0f} s", flush=True)

    with open(os.path.join(OUT, "results.jsonl"), "w", encoding="utf-8") as results:
        for mutant in mutants:
            outcome, by = left_out.get(mutant["id"]), None
            if not outcome:
                outcome = "survived"
                own = mutant["file"].removeprefix("src/").removesuffix(".rs").removesuffix("/mod").replace("/", "::")
                those = [test for test in reaching[mutant["reach"]] if seconds[test] <= LONGEST]
                those.sort(key=lambda test: (seconds[test], test))
                quick = [test for test in those if seconds[test] < 0.05]
                steps = [[test for test in quick if test.startswith(own)], [t for t in quick if not t.startswith(own)]]
                for step in steps + [[test] for test in those if seconds[test] >= 0.05]:
                    if step:
                        came, _ = run(binary, step, mutant["id"], int(5 + 10 * sum(seconds[test] for test in step)))
                        if came != "ok":
                            outcome, by = "caught" if came == "failed" else came, step if len(step) == 1 else None
                            break
            line = {"id": mutant["id"], "file": mutant["file"], "name": mutant["name"], "outcome": outcome, "by": by,
                    "reached": len(reaching[mutant.get("reach")])}
            results.write(json.dumps(line) + "\n")
            results.flush()
            if outcome == "survived":
                print(f"survived ({line['reached']} tests reach it): {mutant['name']}", flush=True)


main()
