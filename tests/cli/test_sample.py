import numpy as np
import pytest
import torch
from PIL import Image

from rectangular_flows import SavedRun
from rectangular_flows.data.tables import read_table


def test_samples_have_the_columns_and_the_seed(here, rnf):
    assert rnf("sample", "table-run", "-n", 7, "-o", "new/a.csv", "--seed", 3) == "7 samples in new/a.csv\n"
    table = read_table("new/a.csv")
    assert table.columns == ("height", "weight", "age")
    expected = SavedRun("table-run").flow.sample(7, generator=torch.Generator().manual_seed(3))
    np.testing.assert_allclose(table.values, expected, rtol=1e-6)
    assert rnf("sample", "table-run", "-n", 2) == "2 samples in samples.csv\n"


def test_images_as_bytes_or_as_one_picture(here, rnf):
    assert rnf("sample", "image-run", "-n", 5) == "5 images in samples.npy\n"
    images = np.load("samples.npy")
    rnf("sample", "image-run", "-n", 5, "-o", "a.npz")
    assert (np.load("a.npz")["images"] == images).all()
    rnf("sample", "image-run", "-n", 5, "-o", "a.png")
    flow = SavedRun("image-run").flow
    expected = flow.sample(5, generator=torch.Generator().manual_seed(0)).clamp(0, 1).numpy()
    assert np.abs(images / 255 - expected).max() < 1 / 255
    with Image.open("a.png") as picture:
        across, down = picture.size
        assert across >= 3 * 2 * images.shape[3]  # three columns of images, enlarged
        assert across > down  # and two rows


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table-run", "-n", "0"], "at least one sample; got -n 0"),
        (["image-run", "-o", "a.csv"], "images are written as .npy, .npz, .png; got a.csv"),
        (["nowhere"], "no model in nowhere"),
    ],
)
def test_mistakes_are_told(here, rnf, words, message):
    assert message in rnf("sample", *words, code=2)
