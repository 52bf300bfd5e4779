#!/usr/bin/env python3
"""Runs the mutants that `cargo mutants --list --json` has named; started by mutants.sh, docs in mutants.md.

All mutants are built at once: the body of each function becomes a `match` on the number of the active mutant,
one arm for each, and the last for the function as it is. So a mutant costs a run of the tests that reach its
function, and no build. What the compiler refuses is left out (unviable). Mutants outside of the bodies of
functions are built one at a time. The exit code is 1 if less than 95 % are caught, or if a survivor has no
reason in mutants.md.
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
# Seconds of a core: tests that take longer run only with the mutants that all others have let through.
LONGEST = float(os.environ.get("LONGEST", "1"))
PACKAGE = os.path.join(TREE, "simulation/pure")
SWITCH = """
type Reached = std::sync::atomic::AtomicBool;
static REACHED: [Reached; 8192] = [const { Reached::new(false) }; 8192];
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
/// What functions return that return an `impl Iterator`: each arm has a type of its own.
pub(crate) enum Arms<A, B> { This(A), Next(B) }
impl<A: Iterator, B: Iterator<Item = A::Item>> Iterator for Arms<A, B> {
    type Item = A::Item;
    fn next(&mut self) -> Option<A::Item> {
        match self { Self::This(this) => this.next(), Self::Next(next) => next.next() }
    }
}
"""
# A comment, a string, a character or a brace: enough to find the body of a function.
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|b?r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\u\{\w+\}|\\.|[^\\'])'|[{}]",
    re.DOTALL,
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


def wrapped(body, head, arm, last):
    """The body of an arm, as what the function returns."""
    returned = re.search(r"->\s*(\()?.*\bimpl Iterator\b", head, re.DOTALL)
    if not returned:
        return body
    in_pair = returned.group(1)
    arms = "crate::protocol::Arms"
    value = "second" if in_pair else body
    value = f"{arms}::Next({value})" if arm == last else f"{arms}::This({value})"
    for _ in range(min(arm, last - 1)):
        value = f"{arms}::Next({value})"
    return f"{{ let (first, second) = {body}; (first, {value}) }}" if in_pair else value


def switched(source, functions, left_out):
    """The text of a file with a `match` in each function; `functions` are (number, start, end, mutants)."""
    text = source.text
    for number, start, end, mutants in sorted(functions, key=lambda function: -function[1]):
        body = source.body(start, end)
        head = source.text[start:body]
        live = [mutant for mutant in mutants if mutant["id"] not in left_out]
        arms = []
        for arm, mutant in enumerate(live):
            first, last = mutant["at"]
            changed = source.text[body:first] + mutant["replacement"] + source.text[last:end]
            changed = wrapped(changed, head, arm, len(live))
            arms.append(f"\n/*M{mutant['id']}*/ {mutant['id']} => {changed},\n/*E*/")
        if arms:
            arms.append(f"\n_ => {wrapped(source.text[body:end], head, len(live), len(live))}")
            # What asks for the active mutant is not known at compile time.
            head = head.replace("const fn", "fn")
            body = f"{{ match crate::protocol::mutant({number}) {{{''.join(arms)}\n}} }}"
            text = text[:start] + head + body + text[end:]
    return text


def put(path, text):
    with open(os.path.join(TREE, path), "w", encoding="utf-8") as file:
        file.write(text)


def write(sources, functions, left_out):
    """Writes the files. Returns which mutant a line is of, and else the function."""
    where = {}
    for path, source in sources.items():
        text = switched(source, functions[path], left_out)
        function = active = None
        for number, line in enumerate(text.splitlines(), 1):
            if asks := re.search(r"\bprotocol::mutant\((\d+)\)", line):
                function = -int(asks.group(1))
            if begin := re.match(r"/\*M(\d+)\*/", line):
                active = int(begin.group(1))
            elif line.startswith("/*E*/"):
                active = None
            where[path, number] = active or function
        if path == "src/protocol/mod.rs":
            text += SWITCH
        put(path, text)
    return where


def cargo(*arguments):
    # Cargo does not see all changes of files outside of a package.
    os.utime(os.path.join(PACKAGE, "lib.rs"))
    command = ["cargo", *arguments, "--locked", "--quiet", "--message-format=json"]
    run = subprocess.run(command, cwd=PACKAGE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def refused(messages, where):
    """The mutants in which the compiler has found errors; the functions of other errors, and their texts."""
    found, functions, rendered = set(), set(), []
    for message in messages:
        message = message.get("message")
        if not isinstance(message, dict) or message.get("level") != "error":
            continue
        spans = sorted(message["spans"], key=lambda span: not span["is_primary"])
        paths = [span["file_name"][span["file_name"].find("src/"):] for span in spans]
        places = [where.get((path, span["line_start"])) or 0 for path, span in zip(paths, spans)]
        first = next((place for place in places if place > 0), None)
        if first:
            found.add(first)
        else:
            functions.update(-place for place in places if place < 0)
            rendered.append(message["rendered"])
    return found, functions, rendered


def limits(cpu):
    def apply():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
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
    child = subprocess.Popen(
        command, env=environment, preexec_fn=limits(cpu), cwd=PACKAGE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ticks = None
    while True:
        try:
            code = child.wait(timeout=60)
            break
        except subprocess.TimeoutExpired:
            # It waits for something, or for a core: only the first uses no time at all.
            with open(f"/proc/{child.pid}/stat", encoding="utf-8") as file:
                before, ticks = ticks, file.read().rpartition(")")[2].split()[11:13]
            if ticks == before:
                child.kill()
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start
    return "ok" if code == 0 else "timeout" if code in (-24, -9) else "failed", seconds


def built(*first):
    """The path of the tests, built, after a command that finds errors sooner; and what the compiler says."""
    for command in [*first, ("test", "--lib", "--no-run")]:
        code, messages = cargo(*command)
        if code != 0:
            return None, messages
    return next(m["executable"] for m in messages if m.get("executable")), messages


def judge(binary, mutant, tests, seconds, number):
    """Runs tests, first cheap ones and those of the mutant's file. The outcome, and the test that failed."""
    own = mutant["file"].removeprefix("src/").removesuffix(".rs").removesuffix("/mod").replace("/", "::")
    tests = sorted(tests, key=lambda test: (seconds[test], test))
    quick = [test for test in tests if seconds[test] < 0.05]
    steps = [[test for test in quick if test.startswith(own) == is_own] for is_own in (True, False)]
    steps += [[test] for test in tests if seconds[test] >= 0.05]
    for step in steps:
        if step:
            # Of a core, so that a busy machine changes nothing.
            outcome, _ = run(binary, step, number, int(3 + 5 * sum(seconds[test] for test in step)))
            if outcome != "ok":
                return "caught" if outcome == "failed" else outcome, step[0] if len(step) == 1 else None
    return "survived", None


def argued():
    """What mutants.md says of survivors: (file, name, the source from the change on or ""), and why."""
    with open(os.path.join(TREE, "simulation/mutants.md"), encoding="utf-8") as file:
        items = re.findall(r"^- (.+(?:\n  .+)*)", file.read(), re.MULTILINE)
    form = re.compile(r"`(src/[^`]+)`: `([^`]+)`(?: at `([^`]+)`)?: (.+)", re.DOTALL)
    found = [form.fullmatch(re.sub(r"\n +", " ", item)) for item in items]
    return {(m.group(1), m.group(2), m.group(3) or ""): m.group(4) for m in found if m}


def table(mutants):
    """Lines of Markdown, and the percentage."""
    head = "| file | mutants | unviable | caught | of them by time | survived | caught of viable |"
    lines = [head, "|---" * 7 + "|"]
    files = collections.defaultdict(list)
    for mutant in mutants:
        files[mutant["file"]].append(mutant["outcome"])
    files = dict(sorted(files.items()))
    files["all"] = [outcome for outcomes in files.values() for outcome in outcomes]
    for file, outcomes in files.items():
        count = collections.Counter(outcomes)
        caught = count["caught"] + count["timeout"]
        viable = caught + count["survived"]
        percent = 100 * caught / max(viable, 1)
        file = file if file == "all" else f"`{file.removeprefix('src/')}`"
        lines.append(f"| {file} | {len(outcomes)} | {count['unviable']} | {caught} | {count['timeout']} "
                     f"| {count['survived']} | {f'{percent:.1f} %' if viable else '-'} |")
    return lines, percent


def main():
    began = time.monotonic()
    with open(LIST, encoding="utf-8") as file:
        mutants = json.load(file)
    sources, functions, left_out, alone = {}, collections.defaultdict(list), {}, []
    of_file = collections.defaultdict(list)
    for number, mutant in enumerate(mutants, 1):
        mutant["id"] = number
        mutant["short"] = re.sub(r"^[^:]+:\d+:\d+: ", "", mutant["name"])
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
            if around and source.body(*around[0]) <= mutant["at"][0]:
                grouped[around[0]].append(mutant)
            else:
                left_out[mutant["id"]] = "alone"
                alone.append(mutant)
        for (start, end), inside in grouped.items():
            count += 1
            for mutant in inside:
                mutant["reach"] = count
            functions[path].append((count, start, end, inside))

    while True:
        where = write(sources, functions, left_out)
        binary, messages = built(("check", "--tests"))
        if binary:
            break
        found, elsewhere, rendered = refused(messages, where)
        found -= left_out.keys()
        print(f"{len(found)} are refused by the compiler", flush=True)
        if not found:
            # No line says which arm it is: one at a time.
            those = [m for m in mutants if m.get("reach") in elsewhere and m["id"] not in left_out]
            if not those:
                sys.exit("does not build:\n" + "\n".join(rendered))
            alone += those
            left_out.update((mutant["id"], "alone") for mutant in those)
        left_out.update((number, "unviable") for number in found)

    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout
    tests = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    reaching, seconds, trace = collections.defaultdict(list), {}, os.path.join(OUT, "reached")
    for test in tests:
        open(trace, "w").close()
        outcome, seconds[test] = run(binary, [test], reached=trace, cpu=600)
        if seconds[test] > LONGEST:
            print(f"{seconds[test]:.0f} s: {test}", flush=True)
        if outcome != "ok":
            sys.exit(f"{test} fails without a mutant: {outcome}")
        with open(trace, encoding="utf-8") as file:
            for line in file:
                reaching[int(line)].append(test)
    with open(os.path.join(OUT, "tests.json"), "w", encoding="utf-8") as file:
        json.dump(dict(sorted(seconds.items(), key=lambda test: -test[1])), file, indent=1)
    print(f"{len(tests)} tests, {sum(seconds.values()):.0f} s; {len(alone)} to build alone", flush=True)

    def settle(mutant, outcome, by, by_those):
        mutant["outcome"] = outcome
        line = {"name": mutant["name"], "outcome": outcome, "by": by, "tests": by_those}
        results.write(json.dumps(line) + "\n")
        results.flush()

    with open(os.path.join(OUT, "results.jsonl"), "w", encoding="utf-8") as results:
        # All with the tests that are not long; then with the long ones what is left.
        for mutant in mutants:
            if left_out.get(mutant["id"]) == "unviable":
                settle(mutant, "unviable", None, 0)
            elif mutant["id"] not in left_out:
                those = [test for test in reaching[mutant["reach"]] if seconds[test] <= LONGEST]
                settle(mutant, *judge(binary, mutant, those, seconds, mutant["id"]), len(those))
        left = [mutant for mutant in mutants if mutant.get("outcome") == "survived"]
        print(f"{len(left)} are left for the long tests, after {time.monotonic() - began:.0f} s", flush=True)
        for mutant in left:
            those = [test for test in reaching[mutant["reach"]] if seconds[test] > LONGEST]
            settle(mutant, *judge(binary, mutant, those, seconds, mutant["id"]), len(those))
            count = len(reaching[mutant["reach"]])
            print(f"{mutant['outcome']} ({count} tests): {mutant['name']}", flush=True)
        for source in sources.values():
            put(source.path, source.text)
        for mutant in alone:
            source = sources[mutant["file"]]
            first, last = mutant["at"]
            put(source.path, source.text[:first] + mutant["replacement"] + source.text[last:])
            binary, _ = built()
            outcome, by = judge(binary, mutant, tests, seconds, 0) if binary else ("unviable", None)
            settle(mutant, outcome, by, len(tests))
            print(f"{mutant['outcome']} (built alone): {mutant['name']}", flush=True)
            put(source.path, source.text)

    reasons, used, open_ones = argued(), set(), []
    for mutant in mutants:
        if mutant["outcome"] == "survived":
            source = sources[mutant["file"]].text[mutant["at"][0]:]
            found = [(file, name, at) for file, name, at in reasons
                     if (file, name) == (mutant["file"], mutant["short"]) and source.startswith(at)]
            used.update(found)
            if not found:
                open_ones.append(f"- `{mutant['file']}`: `{mutant['short']}` at `{source.splitlines()[0]}`: ")
    lines, percent = table(mutants)
    with open(os.path.join(OUT, "table.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print("\n".join(lines))
    for of, usage in (("this", resource.RUSAGE_SELF), ("builds and tests", resource.RUSAGE_CHILDREN)):
        usage = resource.getrusage(usage)
        print(f"{(usage.ru_utime + usage.ru_stime) / 60:.0f} minutes of a core for {of}")
    print(f"{(time.monotonic() - began) / 60:.0f} minutes in all, {percent:.1f} % are caught")
    for file, name, at in reasons.keys() - used:
        if file in of_file:
            print(f"mutants.md argues what does not survive: {file}: {name} {at}")
    for mutant in open_ones:
        print(f"survived, and mutants.md does not say why:\n{mutant}")
    sys.exit(1 if percent < 95 or open_ones else 0)


main()
