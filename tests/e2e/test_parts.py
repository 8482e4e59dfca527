"""Jobs done in parts, by processes that know nothing of each other: the bytes of one run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compressed import compress
from processes import run, start, start_paused, workers_of, write_corpus

import penstok
from penstok.errors import ConflictError, DamageError, InputError
from penstok.executors import processes
from penstok.executors.children import Child, start_child
from penstok.jobs.conflicts import read_job_file
from penstok.jobs.job import prepare
from penstok.jobs.progress import SilentProgress
from penstok.jobs.run import run_job
from penstok.jobs.settings import JobSettings
from penstok.jobs.task import TaskRunner, TaskSpec, TaskWork
from penstok.jobs.tasks import divide_tasks, plan_of_task
from penstok.output.manifest import Manifest
from penstok.output.store import open_store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# As in `processes.SMALL_UNITS`, with the engine that its runs have.
SMALL: dict[str, Any] = {"unit_bytes": 200_000, "block_bytes": 50_000, "engine": "tiktoken"}
SHAPING: dict[str, Any] = {"val_fraction": 0.5, "on_error": "skip"}
TASK_BYTES = 100_000
NUM_TASKS = 10
# A task of one unit appends to its journal three times: the first lines, the unit, the last line.
IN_SECOND_TASK, IN_THIRD_TASK = "journal on disk:5", "journal on disk:8"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of several kinds, 2 MB in 10 tasks, and `local`, the output of one run."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "in").mkdir()
    write_corpus(folder / "in" / "a.txt", 400)
    records = [json.dumps({"text": f"record {idx} " * (idx % 90 + 1)}) for idx in range(700)]
    records[3] = records[650] = "{"
    text = "\n".join(records).encode()
    (folder / "in" / "b.jsonl").write_bytes(text)
    (folder / "in" / "c.jsonl.gz").write_bytes(compress(text, "gzip"))
    table = pa.table({"text": [f"row {idx} " * 60 for idx in range(500)]})
    pq.write_table(table, folder / "in" / "d.parquet", row_group_size=40, compression="none")
    for idx in range(40):
        (folder / "in" / f"e{idx:02}.txt").write_text(f"file {idx} " * idx)
    penstok.tokenize(folder / "in", folder / "local", **SHAPING, **SMALL)
    return folder


def do_part(corpus: Path, output: Path, part: int, num_parts: int, **more: Any) -> None:
    settings = {**SHAPING, **SMALL, "task_size": TASK_BYTES, "workers": 1, **more}
    penstok.tokenize_part(corpus / "in", output, part, num_parts, **settings)


def command_of(corpus: Path, output: Path, part: str, *flags: str) -> tuple[str | Path, ...]:
    shaping = ("--val-fraction", "0.5", "--on-error", "skip", "--task-size", str(TASK_BYTES))
    return ("tokenize", corpus / "in", "-o", output, *shaping, "--part", part, "-j", "1", *flags)


def check(corpus: Path, output: Path) -> None:
    """Finish, and compare with the output of one run."""
    check_finished(corpus, output, penstok.finish(output))


def check_finished(corpus: Path, output: Path, manifest: Manifest) -> None:
    """Compare a finished output with that of one run."""
    expected = penstok.open(corpus / "local").manifest
    for split in ("train", "val"):
        shards = sorted(output.glob(f"{split}_shard_*.bin"))
        assert len(shards) == NUM_TASKS
        data = b"".join(path.read_bytes() for path in shards)
        assert data == (corpus / "local" / f"{split}.bin").read_bytes()
    assert manifest.counts == expected.counts
    assert manifest.inputs == expected.inputs
    skipped = [folder / "skipped.jsonl" for folder in (output, corpus / "local")]
    assert skipped[0].read_bytes() == skipped[1].read_bytes()
    assert not (output / ".penstok").exists()
    assert penstok.verify(output, full=True).is_whole


def num_done(output: Path) -> int:
    return len(list(output.glob(".penstok/tasks/*.jsonl")))


def test_parts_in_any_order_make_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    for part in (2, 3, 1):
        do_part(corpus, tmp_path / "out", part, 3)
    check(corpus, tmp_path / "out")
    assert penstok.verify(tmp_path / "out", full=True, source=True).is_whole


def test_more_parts_than_tasks(corpus: Path, tmp_path: Path) -> None:
    for part in random.Random(1).sample(range(1, 31), 30):
        do_part(corpus, tmp_path / "out", part, 30, task_size=800_000)
    manifest = penstok.finish(tmp_path / "out")
    assert manifest.run["tasks"] == 3
    assert manifest.counts == penstok.open(corpus / "local").manifest.counts


def test_what_is_left_may_be_divided_another_way(corpus: Path, tmp_path: Path) -> None:
    do_part(corpus, tmp_path / "out", 2, 3)
    with pytest.raises(
        DamageError, match="not done: 7 of 10 tasks; missing or unfinished parts: 1/3, 3/3"
    ):
        penstok.finish(tmp_path / "out")
    exit_code, said = run(*command_of(corpus, tmp_path / "out", "1/2"))
    assert exit_code == 0
    assert "part 1/2 is done: 5 tasks, 2 of them by an earlier run" in said
    do_part(corpus, tmp_path / "out", 2, 2)
    check(corpus, tmp_path / "out")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_tasks_on_one_machine_make_the_same_bytes(
    corpus: Path, tmp_path: Path, num_workers: int
) -> None:
    settings = {**SHAPING, **SMALL, "task_size": TASK_BYTES, "workers": num_workers}
    settings["memory"] = "2GiB"
    manifest = penstok.tokenize(corpus / "in", tmp_path / "out", **settings)
    check_finished(corpus, tmp_path / "out", manifest)


def test_tasks_on_one_machine_continue_after_a_kill(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = command_of(corpus, output, "1/1")
    local = tuple(word for word in command if word not in ("--part", "1/1"))
    assert run(*local, fault=IN_THIRD_TASK)[0] == -signal.SIGKILL
    assert num_done(output) == 2
    assert not (output / "manifest.json").exists()
    assert run(*local)[0] == 3
    check_finished(corpus, output, penstok.open(output).manifest)
    # Nothing is left to do, and one task is another job.
    assert run(*local)[0] == 3
    with pytest.raises(ConflictError, match="--task-size"):
        penstok.tokenize(corpus / "in", output, **SHAPING, **SMALL)


def test_a_file_without_rows_that_is_larger_than_a_task(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("some words")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), folder / "b.parquet")
    assert (folder / "b.parquet").stat().st_size > 200
    manifest = penstok.tokenize(folder, tmp_path / "out", task_size=200, val_fraction=0)
    assert manifest.run["tasks"] == 2
    assert manifest.splits["train"].documents == 1


def test_advice_about_the_tokenizer_looks_at_every_shard(tmp_path: Path) -> None:
    """The first shard is English, which says nothing about the Chinese text after it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("some words in English, " * 4_000)
    (tmp_path / "in" / "b.txt").write_text("我们把很多文字变成数字。" * 20_000)
    settings = JobSettings(
        inputs=(str(tmp_path / "in"),),
        output=tmp_path / "out",
        val_fraction=0.0,
        task_bytes=100_000,
    )
    outcome = run_job(settings, SilentProgress())
    assert all(file.tokens for file in outcome.manifest.splits["train"].files)
    assert len(outcome.manifest.splits["train"].files) == 2
    assert "bytes of text per token is low" in " ".join(outcome.hints)


def test_a_hint_names_a_size_that_gives_more_tasks(tmp_path: Path) -> None:
    """Not for a stream, which is one task whatever the size."""
    text = random.Random(1).randbytes(3_000_000).hex("\n", 4).encode()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "a.txt.gz").write_bytes(compress(text, "gzip"))

    def hints_of(name: str) -> str:
        outcome = run_job(
            JobSettings(
                inputs=(str(tmp_path / name),),
                output=tmp_path / f"{name}-out",
                workers=2,
                task_bytes=1 << 40,
                unit_bytes=1 << 20,
            ),
            SilentProgress(),
        )
        return " ".join(outcome.hints)

    assert "1 task for 2 workers: `--task-size 3MiB` gives 3" in hints_of("a.txt")
    assert "task-size" not in hints_of("a.txt.gz")


def test_workers_are_kept_from_task_to_task(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where tasks read streams: a new worker costs as much as a second of encoding."""
    folder = tmp_path / "in"
    folder.mkdir()
    text = (corpus / "in" / "b.jsonl").read_bytes()
    for number in range(5):
        (folder / f"{number}.jsonl.gz").write_bytes(compress(text, "gzip"))
    (folder / "z.jsonl").write_bytes(text)
    started: list[Child] = []

    def start_one(*arguments: Any) -> Child:
        started.append(start_child(*arguments))
        return started[-1]

    monkeypatch.setattr(processes, "start_child", start_one)
    size = (folder / "0.jsonl.gz").stat().st_size
    settings = {**SHAPING, **SMALL, "workers": 1}
    manifest = penstok.tokenize(folder, tmp_path / "tasks", task_size=size, **settings)
    assert manifest.run["tasks"] > 5
    assert len(started) == 1
    penstok.tokenize(folder, tmp_path / "one", **settings)
    shards = sorted((tmp_path / "tasks").glob("train_shard_*.bin"))
    data = b"".join(path.read_bytes() for path in shards)
    assert data == (tmp_path / "one" / "train.bin").read_bytes()


def test_parts_at_once_some_of_them_killed(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    faults = {1: IN_SECOND_TASK, 2: IN_THIRD_TASK, 3: ""}
    commands = {part: command_of(corpus, output, f"{part}/3") for part in faults}
    running = {part: start(*commands[part], fault=fault) for part, fault in faults.items()}
    for process in running.values():
        process.communicate(timeout=120)
    assert running[1].returncode == running[2].returncode == -signal.SIGKILL
    assert running[3].returncode in (0, 3)
    for part in (1, 2):
        assert run(*commands[part])[0] in (0, 3)
    exit_code, said = run("finish", output)
    assert exit_code == 3
    assert "  10 tasks, " in said
    exit_code, said = run("finish", output)
    assert exit_code == 3
    assert "nothing to do" in said
    check(corpus, output)


@pytest.mark.thorough
@pytest.mark.parametrize("turn", range(5))
def test_parts_at_once_in_a_folder_that_is_far_away(
    corpus: Path, tmp_path: Path, turn: int
) -> None:
    """Every part twice, so that each call about a file meets any other; then `finish` twice."""
    output = tmp_path / "out"
    parts = [command_of(corpus, output, f"{part}/3") for part in (1, 2, 3)]
    for commands, exit_codes in ((parts * 2, (0, 3)), ([("finish", output)] * 2, (3, 7))):
        running = [start(*command, slow_folder=output) for command in commands]
        for process in running:
            _, said = process.communicate(timeout=120)
            assert process.returncode in exit_codes, said
    check(corpus, output)


def test_a_killed_worker_is_replaced(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = start_paused(*command_of(corpus, output, "1/1"), fault=IN_SECOND_TASK)
    (worker,) = workers_of(process)
    worker.send_signal(signal.SIGKILL)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=120)
    assert process.returncode in (0, 3), said
    check(corpus, output)


def test_the_same_part_twice_at_once(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    processes = [start(*command_of(corpus, output, "1/1")) for _ in range(2)]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode in (0, 3), said
    check(corpus, output)


def test_a_task_twice_at_once_counts_once(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    do_part(corpus, output, 2, 2)
    job = prepare(
        JobSettings(
            inputs=(str(corpus / "in"),),
            output=output,
            part=(1, 2),
            task_bytes=TASK_BYTES,
            **SHAPING,
            **SMALL,
        )
    )
    job_file = read_job_file(open_store(str(output)))
    assert job_file is not None
    spec = TaskSpec(job.workers.spec, str(output), job_file.job, job_file.digest, "normal")
    tasks = divide_tasks(job.plan, TASK_BYTES)[:5]

    def do_all(order: list[int]) -> None:
        with TaskRunner(spec) as runner:
            for number in order:
                runner.run(TaskWork(tasks[number], plan_of_task(job.plan, tasks[number])))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(do_all, [[0, 1, 2, 3, 4], [0, 1, 4, 3, 2]]))
    assert num_done(output) == 15
    check(corpus, output)


def test_one_that_is_late_disturbs_nothing(corpus: Path, tmp_path: Path) -> None:
    """It is stopped in the middle of a task, and goes on when others have finished the job."""
    output = tmp_path / "out"
    late = start_paused(*command_of(corpus, output, "1/1"), fault=IN_SECOND_TASK)
    family = [late.pid, *(worker.pid for worker in workers_of(late))]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        do_part(corpus, output, 1, 1)
        check(corpus, output)
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)
    _, said = late.communicate(timeout=120)
    # What it had begun may be gone; running it again says that all is done.
    assert late.returncode in (0, 3), said
    assert run(*command_of(corpus, output, "1/1"))[0] == 0
    check(corpus, output)


def test_empty_folders_left_by_a_late_part_are_deleted(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    do_part(corpus, output, 1, 1)
    check(corpus, output)
    (output / ".penstok" / "tasks").mkdir(parents=True)
    check(corpus, output)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 5}, "`--seed` 0 there, 5 here"),
        ({"task_size": 300_000}, "`--task-size` 100000 there, 300000 here"),
        ({"unit_bytes": 100_000}, "units of 200,000 bytes there, 100,000 here"),
    ],
)
def test_a_part_of_another_job_is_refused(
    corpus: Path, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    do_part(corpus, tmp_path / "out", 12, 12)
    with pytest.raises(ConflictError, match=told):
        do_part(corpus, tmp_path / "out", 2, 3, **change)


def test_a_part_with_a_changed_input_is_refused(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "in", tmp_path / "in")
    do_part(tmp_path, tmp_path / "out", 12, 12)
    with (tmp_path / "in" / "a.txt").open("a") as file:
        file.write("more")
    exit_code, said = run(*command_of(tmp_path, tmp_path / "out", "1/3"))
    assert exit_code == 5
    assert "an input was changed or replaced" in said
    (tmp_path / "in" / "z.txt").write_text("new")
    with pytest.raises(ConflictError, match="44 inputs there, 45 here"):
        do_part(tmp_path, tmp_path / "out", 1, 3)


def test_tasks_of_an_input_that_changes_are_forgotten(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "in", tmp_path / "in")
    output, text = tmp_path / "out", tmp_path / "in" / "a.txt"
    before = text.stat()
    process = start_paused(*command_of(tmp_path, output, "1/1"), fault=IN_SECOND_TASK)
    os.utime(text)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 4
    assert "the file changed while the job ran" in said
    with pytest.raises(DamageError, match="not done: 5 of 10 tasks"):
        penstok.finish(output)
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    do_part(tmp_path, output, 1, 1)
    assert penstok.finish(output).counts == penstok.open(corpus / "local").manifest.counts


def spoil_journal(work: Path) -> str:
    path = sorted(work.glob("tasks/*.jsonl"))[4]
    path.write_bytes(path.read_bytes()[:-30])
    return "the journal of a task is damaged"


def lose_tokens(work: Path) -> str:
    path = sorted(work.glob("tasks/*/train_shard_00004.bin.partial"))[0]
    path.unlink()
    return "not done: 1 of 10 tasks; missing or unfinished parts: 1/1"


@pytest.mark.parametrize("harm", [spoil_journal, lose_tokens])
def test_a_task_that_was_harmed_is_done_anew(
    corpus: Path, tmp_path: Path, harm: Callable[[Path], str]
) -> None:
    output = tmp_path / "out"
    do_part(corpus, output, 1, 1)
    told = harm(output / ".penstok")
    with pytest.raises(DamageError, match=told) as caught:
        penstok.finish(output)
    if harm is spoil_journal:
        assert "delete this file" in caught.value.next_step
        Path(caught.value.where).unlink()
    do_part(corpus, output, 1, 1)
    check(corpus, output)


def test_finish_finds_no_job(corpus: Path, tmp_path: Path) -> None:
    exit_code, said = run("finish", tmp_path / "nothing")
    assert exit_code == 6
    assert "there is no job to finish here" in said
    assert not (tmp_path / "nothing").exists()
    shutil.copytree(corpus / "local", tmp_path / "whole")
    exit_code, said = run("finish", tmp_path / "whole")
    assert exit_code == 3
    assert "nothing to do" in said


def test_parts_without_a_document_are_told(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("   \n")
    do_part(tmp_path, tmp_path / "out", 1, 1, strip=True)
    with pytest.raises(InputError, match="no document in the input: 1 empty one dropped"):
        penstok.finish(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_jobs_of_both_kinds_keep_out_of_each_others_way(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    whole = ("tokenize", corpus / "in", "-o", output, "--on-error", "skip", "--val-fraction", "0.5")
    # A part where a whole job is unfinished, then where it is finished.
    assert run(*whole, fault="journal on disk:3")[0] == -signal.SIGKILL
    exit_code, said = run(*command_of(corpus, output, "1/1"))
    assert exit_code == 5
    assert "another job is unfinished here (one task there, many tasks" in said
    assert run(*whole)[0] == 3
    exit_code, said = run(*command_of(corpus, output, "1/1"))
    assert exit_code == 5
    assert "the output was made by another job" in said
    assert run(*command_of(corpus, output, "1/1", "--overwrite"))[0] == 2
    # A whole job where parts are unfinished.
    shutil.rmtree(output)
    do_part(corpus, output, 1, 12)
    exit_code, said = run(*whole)
    assert exit_code == 5
    assert "another job is unfinished here (many tasks (`--task-size`" in said
    assert run(*whole, "--overwrite")[0] == 3
    assert (output / "train.bin").read_bytes() == (corpus / "local" / "train.bin").read_bytes()
    assert not (output / ".penstok").exists()


def test_a_whole_job_where_parts_were_half_deleted(corpus: Path, tmp_path: Path) -> None:
    do_part(corpus, tmp_path / "out", 1, 12)
    (tmp_path / "out" / ".penstok" / "job.jsonl").unlink()
    penstok.tokenize(corpus / "in" / "e39.txt", tmp_path / "out", **SMALL)
    assert not (tmp_path / "out" / ".penstok").exists()


def test_an_interrupted_part_leaves_what_is_done(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = start_paused(*command_of(corpus, output, "1/1"), fault=IN_SECOND_TASK)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    do_part(corpus, output, 1, 1)
    check(corpus, output)
