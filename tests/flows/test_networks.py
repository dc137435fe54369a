import pytest
import torch
import torch.nn.functional as F

from rectangular_flows.flows import ResidualConvNet


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_keep_values_channels_last(channels, monkeypatch):
    """Primal and tangents are laid out at most once each, after the first convolution, which may have one channel."""
    network = ResidualConvNet(channels, 2, size=(5, 4), width=6, blocks=2)
    seen, laid_out, convolve, contiguous = [], [], F.conv2d, torch.Tensor.contiguous

    def hidden_and_plain(values):
        return values.shape[1] == 6 and not values.is_contiguous(memory_format=torch.channels_last)

    def watched(values, *arguments, **options):
        seen.append(values.shape[1] == 6 and not hidden_and_plain(values))
        return convolve(values, *arguments, **options)

    def counted(values, *arguments, **options):
        laid_out.extend([values.shape] if hidden_and_plain(values) else [])
        return contiguous(values, *arguments, **options)

    monkeypatch.setattr(F, "conv2d", watched)
    monkeypatch.setattr(torch.Tensor, "contiguous", counted)
    y, tangent_map = network.linearize(torch.randn(7, channels, 5, 4))
    tangents = tangent_map(torch.randn(7, 3, channels, 5, 4))
    assert seen == 2 * [False, *5 * [True]]
    assert len(laid_out) <= 2
    assert y.shape == (7, 2, 5, 4)
    assert tangents.shape == (7, 3, 2, 5, 4)
