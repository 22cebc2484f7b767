"""Checkpoints: what was delivered to the loops of all ranks, as a JSON-able dict."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from .. import _core
from ..errors import InvalidError

_FORMAT = "quiver-loader"
_VERSION = 1
State = dict[str, Any]


def to_dict(part: _core.RankState) -> State:
    """The state of one rank; the numbers beside the part are for people."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "epoch": part.epoch,
        "step": part.step,
        "world": part.world,
        "rank": part.rank,
        "parts": [base64.b64encode(part.encode()).decode("ascii")],
    }


def parts_of(state: Any) -> list[_core.RankState]:
    """All parts of a state, decoded."""
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise InvalidError(
            "this is not the state of a quiver_cache.torch.DataLoader: pass what its state_dict() "
            "or merge_states() returned"
        )
    if state.get("version") != _VERSION:
        raise InvalidError(
            f"this loader state has version {state.get('version')}, this release reads "
            f"{_VERSION}: load it with the release that wrote it"
        )
    try:
        encoded = [base64.b64decode(part, validate=True) for part in state["parts"]]
    except (KeyError, TypeError, ValueError, binascii.Error) as problem:
        raise InvalidError(f"the loader state is damaged: {problem}; use an older one") from problem
    if not encoded:
        raise InvalidError("the loader state has no part in it: use an older one")
    return [_core.RankState.decode(part) for part in encoded]


def merge_states(states: Sequence[State]) -> State:
    """The state of the job from those of its ranks, all of one step, in any order.

    With torch.distributed: `all_gather_object(states, loader.state_dict())`, then this.
    """
    parts = sorted((p for state in states for p in parts_of(state)), key=lambda p: p.rank)
    if not parts:
        raise InvalidError("merge_states was given no state")
    _core.check_states(parts)
    merged = to_dict(parts[0])
    del merged["rank"]
    merged["parts"] = [base64.b64encode(part.encode()).decode("ascii") for part in parts]
    return merged


def complete_parts(state: Any, manifest: _core.Manifest) -> list[_core.RankState]:
    """The parts of a state that can be loaded for this dataset, or a refusal that says why not."""
    parts = parts_of(state)
    first = parts[0]
    same = first.dataset == manifest.public_id or first.dataset == manifest.listing_id
    if not same or first.items != len(manifest):
        raise InvalidError(
            f"this state is of another dataset ({first.dataset}, {first.items} items; this one is "
            f"{manifest.public_id}, {len(manifest)} items): load it with the manifest that it was "
            "saved with"
        )
    if len(parts) == 1 and first.world > 1:
        raise InvalidError(
            f"this is the state of rank {first.rank} alone and the job had {first.world} ranks: "
            "gather the states of all ranks and load merge_states(states)"
        )
    _core.check_states(parts)
    return parts
