"""What is found before a pipeline starts. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from pillarbox import open_mailbox
from pillarbox.log import Log
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.checks import problems


class Order(Struct):
    number: int


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline("shop", path=tmp_path / "shop")


def passing(*frames: object) -> object:
    return frames[0]


def only_problem(pipeline: Pipeline, *, on_disk: bool = False) -> str:
    with pytest.raises(PipelineError) as caught:
        pipeline.check(on_disk=on_disk)
    assert len(caught.value.problems) == 1, caught.value.problems
    return caught.value.problems[0]


def test_R80_a_chain_a_join_and_a_fan_out_are_fine(pipeline: Pipeline) -> None:
    for name in ("orders", "payments", "paid", "large", "small"):
        pipeline.log(name, Order)

    @pipeline.source(outputs="orders")
    def shop():  # type: ignore[no-untyped-def]
        yield Order(1)

    pipeline.stream(inputs=["orders", "payments"], outputs="paid", id="join")(passing)
    pipeline.stream(inputs="paid", outputs=["large", "small"], id="fan")(passing)
    pipeline.sink(inputs="large", id="ship")(lambda batch, step: None)
    pipeline.check()
    assert [each.id for each in pipeline.graph.in_order()] == ["shop", "join", "fan", "ship"]


def test_R80_a_cycle_is_found_and_named(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.log("b")
    pipeline.stream(inputs="a", outputs="b", id="there")(passing)
    pipeline.stream(inputs="b", outputs="a", id="back")(passing)
    assert "cycle: a -> there -> b -> back -> a" in only_problem(pipeline)


@pytest.mark.parametrize(("inputs", "outputs"), [(["a", "a"], "b"), ("a", ["b", "b"])])
def test_R80_a_log_is_named_once(pipeline: Pipeline, inputs: object, outputs: object) -> None:
    """A stateful stream would write every row twice to an output that it names twice."""
    pipeline.log("a")
    pipeline.log("b")
    pipeline.stream(inputs=inputs, outputs=outputs, id="s")(passing)  # type: ignore[arg-type]
    assert "2 times; name it once" in only_problem(pipeline)


def test_R80_a_processor_that_reads_what_it_writes_is_a_cycle(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.stream(inputs="a", outputs="a", id="loop")(passing)
    assert "cycle: a -> loop -> a" in only_problem(pipeline)


def test_R80_a_log_that_is_not_declared_is_named(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.stream(inputs="a", outputs="nowhere", id="s")(passing)
    assert "pipeline.log('nowhere')" in only_problem(pipeline)


def test_R80_an_input_that_nobody_writes_must_be_there(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.log("orders", url=f"file:{tmp_path}/orders")
    pipeline.log("out")
    pipeline.stream(inputs="orders", outputs="out", id="s")(passing)
    pipeline.check()
    text = only_problem(pipeline, on_disk=True)
    assert "s would read the log 'orders'" in text
    assert "check the URL" in text
    Log.open(tmp_path / "orders").close()
    pipeline.check(on_disk=True)


def test_R80_a_mailbox_that_is_there_is_an_input(pipeline: Pipeline, tmp_path: Path) -> None:
    open_mailbox(f"file:{tmp_path}/store/orders", str).close()
    pipeline.log("orders", str, url=f"file:{tmp_path}/store/orders")
    pipeline.sink(inputs="orders", id="s")(lambda batch, step: None)
    pipeline.check(on_disk=True)


def test_R80_two_processors_with_one_id(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.log("b")
    for _ in range(2):
        pipeline.stream(inputs="a", outputs="b", id="s")(passing)
    assert "2 processors have the id 's'" in only_problem(pipeline)


def test_R80_two_names_for_one_log(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.log("a", url=f"file:{tmp_path}/x")
    pipeline.log("b", url=f"file://{tmp_path}/y/../x")
    pipeline.stream(inputs="a", outputs="b", id="s")(passing)
    assert "a and b are the same log" in only_problem(pipeline)


def test_R80_a_function_must_take_its_inputs(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.log("b")
    pipeline.log("c")
    pipeline.stream(inputs=["a", "b"], outputs="c", id="join")(lambda a: a)
    assert "takes (a), but is given (a, b)" in only_problem(pipeline)


def test_R80_a_sink_must_take_the_step(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.sink(inputs="a", id="ship")(lambda batch: None)
    assert "given (a, step)" in only_problem(pipeline)


def test_R80_a_stream_writes_to_logs_only(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.log("b", url="redis://localhost/b")
    pipeline.stream(inputs="a", outputs="b", id="s")(passing)
    assert "add a sink that sends it to the mailbox" in only_problem(pipeline)


def test_R80_no_problem_shows_a_secret(pipeline: Pipeline) -> None:
    pipeline.log("a", url="http://key:hidden@here/a")
    pipeline.log("b", url="redis://:hidden@here/0/b")
    pipeline.log("c", url="redis://:hidden@here/0/b")
    pipeline.stream(inputs="a", outputs="b", id="s")(passing)
    with pytest.raises(PipelineError) as caught:
        pipeline.check()
    assert len(caught.value.problems) == 2
    assert "hidden" not in str(caught.value)
    with pytest.raises(PipelineError, match=r"\(http://here/a\) has no directory"):
        pipeline.directory("a")


def test_R80_a_condition_that_would_be_ignored_is_a_problem(pipeline: Pipeline) -> None:
    a, b = pipeline.log("a", Order), pipeline.log("b", Order)
    pipeline.stream(inputs=a, outputs=b.where("number > 1"), id="s")(passing)
    assert "writes to 'b' with a where(); filter the rows" in only_problem(pipeline)


def test_R80_one_record_at_a_time_has_no_condition(pipeline: Pipeline) -> None:
    a, b = pipeline.log("a", Order), pipeline.log("b", Order)
    pipeline.stream(inputs=a.where("number > 1"), outputs=b, each=True, id="s")(passing)
    assert "return None for the others" in only_problem(pipeline)


def test_R80_a_generator_has_its_log_alone(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.log("b")

    @pipeline.source(outputs="b")
    def shop():  # type: ignore[no-untyped-def]
        yield 1

    pipeline.stream(inputs="a", outputs="b", id="s")(passing)
    assert "shop and s all write to 'b'" in only_problem(pipeline)


def test_R80_a_function_whose_call_would_do_nothing_is_refused(pipeline: Pipeline) -> None:
    """A batch that a sink never ran on would count as delivered."""
    pipeline.log("a")

    @pipeline.sink(inputs="a", id="yields")
    def yields(batch: object, step: object) -> Iterator[object]:
        yield batch

    @pipeline.sink(inputs="a", id="waits")
    async def waits(batch: object, step: object) -> None: ...

    with pytest.raises(PipelineError) as caught:
        pipeline.check()
    first, second = caught.value.problems
    assert "'yields' yields, so calling it would do nothing" in first
    assert "'waits' is async" in second


def test_R80_a_generator_writes_one_log(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.log("b")

    @pipeline.source(outputs=["a", "b"])
    def shop():  # type: ignore[no-untyped-def]
        yield 1

    assert "is a generator and has 2 outputs" in only_problem(pipeline)


def test_R85_an_unknown_strategy_is_refused(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.log("b")
    pipeline.stream(inputs="a", outputs="b", id="s", strategy="twice")(passing)  # type: ignore[arg-type]
    assert "use one of exactly-once, at-least-once, at-most-once" in only_problem(pipeline)


def test_R80_every_problem_is_listed_at_once(pipeline: Pipeline) -> None:
    pipeline.log("a b")
    pipeline.stream(inputs="x", outputs="y", id="1")(lambda: None)
    found = problems(pipeline.graph)
    assert len(found) == 5, found


def test_R80_an_empty_pipeline_is_refused(pipeline: Pipeline) -> None:
    assert "no processor" in only_problem(pipeline)


def test_R87_an_error_log_can_be_read_in_the_pipeline(pipeline: Pipeline) -> None:
    pipeline.log("a")
    pipeline.log("b")
    pipeline.stream(inputs="a", outputs="b", id="s")(passing)
    pipeline.sink(inputs=pipeline.errors("s"), id="alarm")(lambda failed, step: None)
    pipeline.check(on_disk=False)
    assert [each.id for each in pipeline.graph.writers("errors-s")] == ["s"]
    assert [each.id for each in pipeline.graph.in_order()] == ["s", "alarm"]
