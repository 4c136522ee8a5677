"""Generate with plain decoding, the DFlash chain or the DDTree tree: one loop for the three methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor

from drafttree.drafter.context import DrafterContext
from drafttree.drafter.drafter import Drafter
from drafttree.sampling import SamplingParams, choose
from drafttree.transformers.request import Request
from drafttree.transformers.result import Generation
from drafttree.transformers.target import target_for
from drafttree.tree import DraftTree, Walk, build_tree, walk
from drafttree.tree.walk import walk_lazily


def generate(
    target: Any,
    drafter: Drafter | None,
    input_ids: Any,
    *,
    method: Literal["tree", "chain", "plain"] = "tree",
    budget: int = 16,
    spine: bool | int = False,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_token_ids: Iterable[int] | int | None = None,
) -> Generation:
    """Continue a prompt; the tokens are those that plain decoding with the same options gives.

    Args:
        target: a Hugging Face causal language model (Llama, Qwen2, Qwen3), in evaluation mode.
        drafter: from ``load_drafter``; may be None for ``method="plain"``.
        input_ids: token ids, a list, [T] or [1, T].
        method: ``tree`` (DDTree), ``chain`` (the drafter's top-1 tokens, plain DFlash) or ``plain``.
        budget: nodes of a tree, without the root; 0 is plain decoding in all but name.
        spine: as in ``build_tree``. False is DDTree's own tree: at every budget measured it accepted at least as much
            as a full or a partial spine (docs/benchmarks.md).
        max_new_tokens: tokens to generate at most.
        temperature: 0 is greedy, otherwise sampled.
        top_k, top_p: filters of the distribution that is sampled, as in Transformers.
        seed: same seed, same tokens, whatever the method; None draws one and notes it in the result.
        stop_token_ids: tokens that end the text; None takes the target's own.

    Raises:
        UserError: an argument that cannot be used, or a target or drafter that does not fit.
    """
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    request = Request.checked(
        target,
        drafter is not None,
        input_ids,
        method=method,
        budget=budget,
        spine=spine,
        max_new_tokens=max_new_tokens,
        params=params,
        stop_token_ids=stop_token_ids,
    )
    result = Generation(seed=None if params.greedy else request.params.seed)
    start = perf_counter()
    for _ in _decode(target, drafter, request, result):
        pass
    result.wall_seconds = perf_counter() - start
    return result


def stream(target: Any, drafter: Drafter | None, input_ids: Any, **options: Any) -> Iterator[int]:
    """As :func:`generate`, same arguments, but an iterator of committed tokens, a step's tokens as soon as it ends.

    Bad arguments raise at the call, not at the first token.
    """
    sampling = {name: options.pop(name) for name in ("temperature", "top_k", "top_p", "seed") if name in options}
    rest: dict[str, Any] = {"method": "tree", "budget": 16, "spine": False, "stop_token_ids": None} | options
    params = SamplingParams(**sampling)
    request = Request.checked(target, drafter is not None, input_ids, params=params, **rest)
    return _decode(target, drafter, request, Generation())


def _decode(model: Any, drafter: Drafter | None, request: Request, result: Generation) -> Iterator[int]:
    """The loop: draft, build, verify, walk, commit. Yields each emitted token; fills ``result``."""
    if request.method == "plain":
        drafter = None
    depth_limit = drafter.config.block_size - 1 if drafter else 0
    max_nodes = {"plain": 0, "chain": depth_limit, "tree": request.budget}[request.method]
    max_length = min(len(request.ids) + request.max_new_tokens, request.context)
    target = target_for(model, drafter.config.target_layer_ids if drafter else (), max_length, max_nodes)
    context = drafter.new_context(max_length) if drafter else None
    try:
        with result.stage("prefill"):
            logits, taps = target.prefill(request.ids)
            where = torch.tensor([target.length], device=logits.device)
            anchor = int(choose(logits[None], where, request.params)[0])
            if drafter and context is not None and taps is not None:
                drafter.extend(context, taps, 0)
        yield from _emit(result, request, [anchor])
        while result.finish_reason is None:
            if target.length >= request.context:
                result.finish_reason = "context"
                break
            # a step emits one token more than its tree is deep, and no node may stand outside the context
            depth = min(
                depth_limit, request.max_new_tokens - len(result.tokens) - 1, request.context - target.length - 1
            )
            tree = _propose(drafter, context, anchor, depth, request, result)
            with result.stage("verify"):
                tokens = torch.cat([tree.tokens.new_tensor([anchor]), tree.tokens])  # [n + 1]
                depths = tree.node_depths()
                logits, taps = target.verify(tokens, depths, tree.ancestor_mask())  # [n + 1, V], [1, n + 1, W]
            with result.stage("walk"):
                step = _walk(tree, logits, target.length + depths + 1, request.params)
            with result.stage("commit"):
                start = target.length
                target.commit(step.path)
                if drafter and context is not None and taps is not None:
                    drafter.extend(context, taps[:, step.path], start)
            emitted = [*tokens[step.path[1:]].tolist(), step.bonus]
            anchor = step.bonus
            kept = list(_emit(result, request, emitted))
            result.acceptance_lengths.append(len(kept))
            result.paths.append(step.path)
            yield from kept
    finally:
        target.close()


def _propose(
    drafter: Drafter | None,
    context: DrafterContext | None,
    anchor: int,
    depth: int,
    request: Request,
    result: Generation,
) -> DraftTree:
    """The tree of this step, at most ``depth`` deep."""
    if drafter is None or context is None or depth < 1:
        return DraftTree.root_only(request.ids.device)
    with result.stage("draft"):
        logits = drafter.draft(context, anchor, depth + 1)  # [depth, V]
    with result.stage("build"):
        if request.method == "chain":
            return DraftTree.chain(logits.argmax(-1).to(request.ids.device))
        return build_tree(logits.to(request.ids.device), request.budget, spine=request.spine)


def _walk(tree: DraftTree, logits: Tensor, positions: Tensor, params: SamplingParams) -> Walk:
    """Greedy choices cost little, so all nodes make theirs at once; sampled ones are made where the path comes by."""
    if params.greedy or logits.device.type != "cpu":
        return walk(tree, choose(logits, positions, params))
    return walk_lazily(tree, lambda node: int(choose(logits[node : node + 1], positions[node : node + 1], params)[0]))


def _emit(result: Generation, request: Request, tokens: list[int]) -> Iterator[int]:
    """Add ``tokens`` to the result up to a stop token or the longest length, and yield what was added."""
    for token in tokens:
        result.tokens.append(token)
        if token in request.stops:
            result.finish_reason = "stop"
        elif len(result.tokens) == request.max_new_tokens:
            result.finish_reason = "length"
        yield token
        if result.finish_reason is not None:
            return
