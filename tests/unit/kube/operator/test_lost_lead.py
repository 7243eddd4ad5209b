"""An operator whose lead is lost in the middle of one look."""

from elasticd.kube.api.memory import MemoryApi
from elasticd.kube.api.port import EventNote
from elasticd.records.reason import Phase
from tests.fixtures.operator_scene import OperatorScene


class ElectingApi(MemoryApi):
    """While it takes an event, another process is elected."""

    scene: OperatorScene | None = None

    def note(self, event: EventNote) -> None:
        super().note(event)
        if self.scene is not None:
            self.scene.elect_anew()
            self.scene = None


def test_who_has_lost_the_lead_writes_nothing_more_to_the_api_server(scene: OperatorScene) -> None:
    """What it had decided before would contradict the new leader in what people read."""
    api = ElectingApi(scene.objects)
    scene.create()
    operator = scene.begin(api=api)
    scene.converge(operator)
    scene.run(scene.jobs[0])
    scene.converge(operator)
    scene.end(scene.jobs[0], Phase.FAILED)
    api.scene = scene
    api.calls.clear()
    operator.evaluate()
    assert api.scene is None and set(api.calls) == {"note events"}
    assert scene.status()["phase"] == "Running"
    scene.converge(scene.begin(scene.elect_anew()))
    assert scene.status()["phase"] == "Failed"
