"""The benchmark's statistics, turns and comparison, on made-up usage; one real command and loop."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import run
from bare_loop import encode_part, find_ends, find_part, make_block
from contenders import DECOMPRESSION
from corpora import Text
from figures import (
    INTERPRETER,
    Estimate,
    Figure,
    compare,
    core_use,
    scaling_ratio,
    seconds_per_gb,
    share_of_parts,
    speed_ratio,
)
from measure import LEAST_TURNS, Command, Contender, Effort, rotated, take_turns
from report import BEGIN, END, PAGE, mark_lines, page_lines, section_lines, write_page
from results import RESULTS, Result, find_last_committed
from sections import DEFAULT_SECTIONS, Bench, Row, find_differences, run_formats
from usage import Usage

import penstok
from penstok.engines.kernel import KernelEngine
from penstok.tokenizers import load_tokenizer


def turns(seconds: list[float], num_bytes: int = 100) -> list[Usage]:
    """Return usage of so many CPU seconds, a tenth in the system, and twice the wall time."""
    return [
        Usage(2 * each, each * 0.9, each * 0.1, 7, num_bytes=num_bytes, num_tokens=30)
        for each in seconds
    ]


def ratio(value: float, width: float = 0.02, label: str = "ours against theirs") -> Figure:
    interval = (value * (1 - width), value * (1 + width))
    return Figure(label, "web", "x", Estimate(value, *interval, num_turns=10))


class Counted:
    """A contender that notes when it is asked."""

    def __init__(self, name: str, log: list[str], steps: range = range(1)) -> None:
        self.name, self.text, self.steps, self._log = name, "text", steps, log

    def start_turn(self) -> None:
        self._log.append(f"{self.name} starts")

    def run(self, step: int) -> Usage:
        self._log.append(f"{self.name}{step}")
        return Usage(1.0, 0.4, 0.1, 5, num_bytes=10, num_tokens=3)


def test_an_estimate_has_the_median_and_an_interval_around_it() -> None:
    estimate = Estimate.from_values([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (estimate.median, estimate.num_turns) == (3.0, 5)
    assert 1.0 <= estimate.low < 3.0 < estimate.high <= 5.0
    assert Estimate.from_values([3.0, 1.0, 2.0, 5.0, 4.0]) == estimate


def test_the_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    rng = random.Random(1)
    estimates = [
        Estimate.from_values([rng.lognormvariate(0.0, 0.1) for _ in range(15)]) for _ in range(200)
    ]
    assert 180 <= sum(each.low <= 1.0 <= each.high for each in estimates) <= 200


def test_noise_that_hits_both_contenders_of_a_turn_does_not_widen_their_ratio() -> None:
    busy = [1.0, 3.0, 1.2, 2.5, 1.1, 1.9, 1.0, 2.2]
    both = speed_ratio(turns(busy), turns([2 * each for each in busy]), "CPU")
    assert (both.low, both.median, both.high) == pytest.approx((2.0, 2.0, 2.0))
    apart = speed_ratio(turns(busy), turns([2 * each for each in reversed(busy)]), "CPU")
    assert apart.high - apart.low > 0.5


def test_speeds_are_compared_per_byte() -> None:
    half = turns([1.0] * 5, num_bytes=50)
    assert speed_ratio(turns([1.0] * 5), half, "CPU").median == pytest.approx(2.0)


def test_a_second_worker_is_compared_with_a_second_bare_loop() -> None:
    one, two = turns([4.0] * 5), turns([2.5] * 5)
    bare, two_bare = turns([3.0] * 5), turns([1.5] * 5)
    assert scaling_ratio((one, two), (bare, two_bare)).median == pytest.approx(0.8)


def test_two_workers_on_a_stream_are_compared_with_two_cores_that_are_never_idle() -> None:
    # Beyond the startup, one worker takes 4 CPU seconds: 2 s on two cores, after 2 s of startup.
    start, one, two = turns([1.0] * 5), turns([5.0] * 5), turns([2.5] * 5)
    assert core_use(two, one, start).median == pytest.approx(0.8)


def test_parts_that_are_measured_alone_are_compared_with_the_whole_turn_by_turn() -> None:
    whole, lines, rest = turns([4.0, 8.0] * 3), turns([2.0, 4.0] * 3), turns([1.0, 2.0] * 3)
    share = share_of_parts(whole, lines, rest)
    assert (share.low, share.median, share.high) == pytest.approx((0.75, 0.75, 0.75))


def test_a_conversion_is_measured_in_seconds_per_gigabyte() -> None:
    assert seconds_per_gb(turns([0.25] * 5, num_bytes=10**8)).median == pytest.approx(5.0)


def test_compressed_lines_have_their_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Startup takes 1 CPU second, every job 2 more, gzip 4 more; decompression alone takes 1."""

    def take(
        bench: Bench, section: str, contenders: list[Contender], **effort: object
    ) -> dict[tuple[str, str], list[Usage]]:
        seconds = {
            (each.name, each.text): 1.0
            if "1 MB" in each.text or each.name == DECOMPRESSION
            else 5.0
            if each.text.endswith("gz")
            else 3.0
            for each in contenders
        }
        return {
            (name, text): turns([each] * 5, num_bytes=10 if "1 MB" in text else 100)
            for (name, text), each in seconds.items()
        }

    monkeypatch.setattr(Bench, "take", take)
    text = tmp_path / "web.txt"
    text.write_bytes(b"one document<|endoftext|>another one<|endoftext|>" * 20)
    texts = [Text("web", text, text.stat().st_size, 40)]
    bench = Bench(texts, tmp_path, False, 1, 1, [], print)
    run_formats(bench)
    found = {(each.label, each.text): each.estimate.median for each in bench.figures}
    assert found["CPU: jsonl.gz against text", "web"] == pytest.approx(0.5)
    for kind, share in (("jsonl.zst", 1.5), ("jsonl.gz", 0.75)):
        label = f"CPU: jsonl and decompression alone of {kind}"
        assert found[label, "web"] == pytest.approx(share)
    # Two cores need 2 s of wall time to start, then half of 4 CPU seconds; two workers took 10.
    label = "wall: least time of two cores against two workers"
    assert found[label, "web.jsonl.gz"] == pytest.approx(0.4)


def test_modules_are_compiled_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name in ("penstok", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").touch()
    monkeypatch.setattr(penstok, "__file__", str(tmp_path / "penstok" / "module.py"))
    monkeypatch.setattr(run, "__file__", str(tmp_path / "benchmarks" / "module.py"))
    run.compile_modules()
    assert len(list(tmp_path.glob("*/__pycache__/module.*.pyc"))) == 2
    # Commands that are measured do not get the variable, which would have them compile again.
    script = "import os; assert 'PYTHONDONTWRITEBYTECODE' not in os.environ"
    Command("script", "", [[sys.executable, "-c", script]]).run(0)
    (tmp_path / "penstok" / "broken.py").write_text("1 +")
    with pytest.raises(SystemExit, match="cannot be compiled"):
        run.compile_modules()


@pytest.mark.parametrize(
    ("interval", "is_limit", "verdict"),
    [
        ((2.1, 2.3), False, "reached"),
        ((1.7, 1.9), False, "missed"),
        ((1.9, 2.1), False, "unclear"),
        ((2.1, 2.3), True, "missed"),
        ((1.7, 1.9), True, "reached"),
        ((1.9, 2.1), True, "unclear"),
        ((2.0, 2.0), True, "reached"),
    ],
)
def test_a_mark_is_reached_or_missed_if_the_whole_interval_is_on_one_side(
    interval: tuple[float, float], is_limit: bool, verdict: str
) -> None:
    figure = Figure("label", "web", "x", Estimate(2.0, *interval, 10), 2.0, is_limit)
    assert figure.verdict == verdict
    assert replace(figure, mark=None).verdict == ""


def test_only_what_differs_by_more_than_the_noise_is_called_slower() -> None:
    assert [
        compare([ratio(2.0)], [ratio(value)])[0].verdict for value in (1.8, 1.94, 2.06, 2.2)
    ] == ["slower", "same", "same", "faster"]
    assert compare([ratio(2.0)], [ratio(1.8, width=0.1)])[0].verdict == "same"


def test_two_precise_runs_may_still_differ_a_little() -> None:
    verdicts = [
        compare([ratio(2.0, 0.001)], [ratio(value, 0.001)])[0].verdict for value in (1.95, 1.93)
    ]
    assert verdicts == ["same", "slower"]


def test_figures_that_did_not_change_are_hardly_ever_called_slower() -> None:
    rng = random.Random(2)

    def run(num_turns: int) -> Figure:
        values = [rng.lognormvariate(0.0, 0.05) for _ in range(num_turns)]
        return Figure("label", "web", "x", Estimate.from_values(values))

    verdicts = [compare([run(10)], [run(6)])[0].verdict for _ in range(300)]
    assert verdicts.count("slower") + verdicts.count("faster") <= 6


def test_a_limit_that_rises_is_slower() -> None:
    before, after = (replace(ratio(value), is_limit=True) for value in (1.0, 1.2))
    assert compare([before], [after])[0].verdict == "slower"
    assert compare([after], [before])[0].verdict == "faster"


def test_seconds_are_compared_relative_to_the_interpreter() -> None:
    def run(job: float, interpreter: float) -> list[Figure]:
        figures = (ratio(job, label="wall: job"), replace(ratio(interpreter), label=INTERPRETER))
        return [replace(each, unit="s", is_limit=True) for each in figures]

    same = compare(run(1.0, 0.02), run(1.0, 0.02))
    assert [(each.label, each.gain, each.verdict) for each in same] == [("wall: job", 0.0, "same")]
    assert compare(run(1.0, 0.02), run(2.0, 0.04))[0].verdict == "same"
    assert compare(run(1.0, 0.02), run(2.0, 0.02))[0].verdict == "slower"


def test_memory_and_figures_of_one_run_only_are_not_compared() -> None:
    memory = replace(ratio(300.0), unit=" MiB")
    assert compare([memory, ratio(1.0, label="gone")], [memory, ratio(2.0, label="new")]) == []


def test_contenders_alternate_step_by_step_in_changing_order() -> None:
    log: list[str] = []
    contenders = [Counted("a", log, range(4)), Counted("b", log, range(0, 4, 2))]
    samples = take_turns(contenders, Effort(0.0), log.append)
    assert log[:9] == ["a starts", "b starts", "a0", "b0", "a1", "b2", "a2", "a3", "turn 1"]
    assert {key: len(used) for key, used in samples.items()} == {
        ("a", "text"): LEAST_TURNS,
        ("b", "text"): LEAST_TURNS,
    }
    assert samples["a", "text"][0] == Usage(4.0, 1.6, 0.4, 20, num_bytes=40, num_tokens=12)
    assert samples["b", "text"][0].num_bytes == 20


def test_everybody_runs_first_and_last_equally_often() -> None:
    contenders = [Counted(name, []) for name in "abc"]
    orders = ["".join(each.name for each in rotated(contenders, number)) for number in range(6)]
    assert sorted(order[0] for order in orders) == sorted(order[-1] for order in orders)
    assert len(set(orders)) == 6


@pytest.mark.parametrize(
    ("seconds", "num_turns", "elapsed_seconds", "is_enough"),
    [
        ([1.0, 1.0], 4, 1000.0, False),
        ([1.0, 1.0], 9, 0.0, False),
        ([1.0, 1.0], 10, 0.0, True),
        ([0.1, 0.2], 10, 0.0, False),
        ([0.1, 0.2], 20, 0.0, True),
        ([0.1, 0.2], 5, 60.0, True),
    ],
)
def test_turns_are_taken_until_there_was_enough_work_or_time(
    seconds: list[float], num_turns: int, elapsed_seconds: float, is_enough: bool
) -> None:
    samples = {(str(idx), ""): turns([each] * num_turns) for idx, each in enumerate(seconds)}
    assert Effort(max_seconds=60.0).is_enough(samples, elapsed_seconds) is is_enough


def test_other_tokens_and_other_bytes_are_named() -> None:
    samples = {("a", "web"): turns([1.0]), ("b", "web"): [replace(turns([1.0])[0], num_tokens=31)]}
    assert find_differences(samples, []) == ["web: b has 31 tokens, a 30"]
    command = Command("penstok", "web", [], digests={("x",), ("y",)})
    assert find_differences({}, [command]) == ["web: runs of Penstok wrote different files"]
    assert find_differences({}, [replace(command, digests={("x",)})]) == []


def test_a_command_is_measured_with_processes_that_outlive_it() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
    used = Command("orphan", "", [[sys.executable, "-c", script]]).run(0)
    assert used.cpu_seconds > 0.2
    assert used.wall_seconds > 0.2
    assert used.page_faults > 0


def test_the_memory_of_a_child_that_lives_for_a_moment_is_counted() -> None:
    hold = "held = b'x' * (200 << 20); import time; time.sleep(0.2)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    assert Command("short", "", [[sys.executable, "-c", script]]).peak_bytes() > 200 << 20


def test_a_command_reads_reports_and_gives_each_run_a_folder() -> None:
    made = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); print('{\"tokens\": 5}')"
    words = [sys.executable, "-c", made, "OUTPUT/new"]
    command = Command("two", "web", [words, [*words[:-1], "OUTPUT/other"]], num_bytes=9)
    assert (command.run(0).num_tokens, command.run(0).num_bytes) == (10, 9)


def test_a_command_that_fails_ends_the_benchmark_with_its_message() -> None:
    script = "import sys; print('no such thing', file=sys.stderr); sys.exit(3)"
    command = Command("broken", "", [[sys.executable, "-c", script]])
    with pytest.raises(SystemExit, match=r"exit 3 from .*\nno such thing"):
        command.run(0)


def test_the_bare_loop_encodes_parts_of_a_text_like_the_whole(tmp_path: Path) -> None:
    long = "one document that is longer than the buffer " * 120_000
    documents = [f"document {number} {'text ' * (number % 70)}" for number in range(3000)]
    text = "".join(f"{each}<|endoftext|>" for each in [*documents, long, *documents]).encode()
    source, target = tmp_path / "corpus.txt", tmp_path / "tokens.bin"
    source.write_bytes(text)
    engine, made = KernelEngine(load_tokenizer("gpt2"), "append"), b""
    for part in range(2):
        begin, end = (find_part(source, each, 2) for each in (part, part + 1))
        used = encode_part(engine, source, target, begin, end)
        made += target.read_bytes()
        assert (used.num_bytes, 2 * used.num_tokens) == (end - begin, target.stat().st_size)
    whole = engine.encode(make_block(memoryview(text), find_ends(text, len(text))))
    assert made == whole.tobytes()


def made_up_result() -> Result:
    rows = [
        Row(section, "penstok", "web", turns([1.0] * 5), 1 << 28) for section in DEFAULT_SECTIONS
    ]
    seconds = replace(ratio(0.3, label="wall: job"), unit="s", is_limit=True)
    figures = [replace(ratio(2.0), mark=1.5), seconds]
    machine = {"cpu": "a CPU", "isas": ["avx2"], "cores": 2, "memory_bytes": 8 << 30}
    machine |= {"python": "3.11", "load_average": [0.1, 0.2, 0.3]}
    date, command = "2026-11-17T00:00:00+00:00", "python benchmarks/run.py"
    return Result(date, "abc1234", command, machine, {"web": 100}, rows, figures, [])


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = made_up_result()
    result.write(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result


def test_results_of_an_earlier_form_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"date": "2026-11-15", "figures": []}')
    with pytest.raises(SystemExit, match="not a result of the benchmark"):
        Result.load(tmp_path / "old.json")


def test_the_last_committed_result_is_the_newest_whole_one(tmp_path: Path) -> None:
    def commit(name: str, result: Result) -> None:
        result.write(tmp_path / name)
        subprocess.run(["git", "add", name], cwd=tmp_path, check=True)

    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    result = made_up_result()
    commit("older.json", result)
    commit("newer.json", replace(result, date="2026-11-18T00:00:00+00:00"))
    commit("part.json", replace(result, date="2026-11-19T00:00:00+00:00", rows=result.rows[:1]))
    replace(result, date="2026-11-20T00:00:00+00:00").write(tmp_path / "not-added.json")
    found = find_last_committed(tmp_path)
    assert found is not None
    assert found[0].name == "newer.json"


def test_tables_show_user_and_system_time_faults_and_memory() -> None:
    line = section_lines(made_up_result().rows[:1])[-1]
    assert line.split() == [
        "penstok",
        "5",
        "2.000",
        "2.000",
        "1.000",
        "1.000",
        "0.900",
        "0.100",
        "7",
        "256",
    ]
    reached, without_mark = mark_lines(made_up_result().figures)[1:]
    assert reached.split()[-4:] == ["at", "least", "1.5x", "reached"]
    assert without_mark.split()[3:] == ["0.300s", "0.294", "to", "0.306"]
    difference = replace(made_up_result().rows[0], is_difference=True)
    assert section_lines([difference])[-1].split()[1:4] == ["5", "2.000", "1.000"]


def test_the_page_is_written_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nAfter\n")
    for _ in range(2):
        write_page(page, {"result.json": made_up_result()})
    content = page.read_text()
    assert content.startswith(
        f"# Before\n\n{BEGIN}\n\n`result.json`, by `python benchmarks/run.py`"
    )
    assert content.endswith(f"{END}\n\nAfter\n")
    assert "old" not in content


def test_the_page_has_the_tables_of_the_results_that_it_names() -> None:
    content = PAGE.read_text(encoding="utf-8")
    generated = content.partition(BEGIN)[2].partition(END)[0]
    names = [line.split("`")[1] for line in generated.splitlines() if line.startswith("`20")]
    last = find_last_committed()
    assert last is None or last[0].name in names
    results = {name: Result.load(RESULTS / name) for name in names}
    assert generated.strip() == "\n".join(page_lines(results)).strip()


@pytest.mark.parametrize(
    ("value", "place", "fails"), [(1.5, "a CPU", True), (2.0, "a CPU", False), (1.5, "x", False)]
)
def test_a_run_says_what_became_slower_than_the_last_committed_result(
    value: float,
    place: str,
    fails: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = made_up_result()
    now = replace(before, figures=[ratio(value)], machine=before.machine | {"cpu": place})
    monkeypatch.setattr(run, "find_last_committed", lambda: (Path("last.json"), before))
    assert run.compare_with_last(now) is fails
    printed = capsys.readouterr().out
    assert "against last.json" in printed
    assert ("slower   -25.0%" in printed) == (value == 1.5)
    assert ("another machine" in printed) == (place == "x")
