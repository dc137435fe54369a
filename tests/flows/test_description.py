import copy
import json

import pytest
import torch
import zuko

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.flows.description import build, describe
from tests.conftest import points, shaken
from tests.flows.layers import LAYERS


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_built_again_from_its_description(name):
    layer = shaken(LAYERS[name]())
    again = build(json.loads(json.dumps(describe(layer)))).double()
    again.load_state_dict(layer.state_dict())
    z = points(layer)
    assert torch.equal(layer(z), again(z))
    assert describe(again) == describe(layer)
    assert describe(copy.deepcopy(layer)) == describe(layer)


def test_building_leaves_the_generator_alone():
    before = torch.get_rng_state()
    build(describe(RectangularFlow(flows.RealNVP(3), flows.RealNVP(2))))
    torch.set_rng_state(before)
    first = torch.rand(1)
    torch.set_rng_state(before)
    build({"class": "RealNVP", "arguments": {"features": 3}})
    assert torch.equal(torch.rand(1), first)


class Mine(flows.Identity):
    def __init__(self, features, *, power=2):
        super().__init__(features)
        self.power = power


def test_layers_of_ones_own():
    description = describe(flows.chain(flows.Identity(2), Mine(2, power=3)))
    assert build(description).layers[1].power == 3
    stranger = json.loads(json.dumps(description).replace("Mine", "Yours"))
    with pytest.raises(ValueError, match=r"Yours.*import it"):
        build(stranger)


@pytest.mark.parametrize(
    "hostile",
    [
        {"class": "os:system", "arguments": {"command": "true"}},
        {"class": "builtins:eval", "arguments": {"source": "1"}},
        {"class": "RealNVP", "arguments": {"features": 2, "surprise": 1}},
        {"class": "RealNVP"},
        {"call": "RealNVP"},
    ],
)
def test_what_is_no_description_is_refused(hostile):
    with pytest.raises(ValueError, match=r"not a layer|does not fit|expected a description"):
        build(hostile)


def test_what_cannot_be_described_is_named():
    flow = RectangularFlow(flows.RealNVP(3), zuko.flows.MAF(2))
    with pytest.raises(TypeError, match=r"model.latent is a MAF.*by name"):
        describe(flow)
