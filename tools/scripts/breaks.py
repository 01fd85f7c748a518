"""Mistakes that somebody could make in this code, for tools/try_breaks: each has to be seen by a
test.

A break is a small textual change: the one place of `path`, a source file (no header), that reads
`old` becomes `new`. Where code moves, the text here moves with it; a place that is gone is an error.
"""

from typing import NamedTuple


class Break(NamedTuple):
    name: str
    what: str
    path: str
    old: str
    new: str


BREAKS = [
    Break("residual_sign", "a kept residual is taken off the next message, not added",
          "compress/kept_parts.cpp",
          "  accumulate(stream, own, sum);\n",
          "  scale(stream, sum, -1.0F, sum);\n  accumulate(stream, own, sum);\n"),
    Break("micro_batch_order", "zb_h1 runs the weight parts that it kept back in falling order",
          "parallel/schedule/zb_h1.cpp",
          "  for (int k = m - kept_back; k < m; ++k) {\n",
          "  for (int k = m - 1; k >= m - kept_back; --k) {\n"),
    Break("missing_wait", "a forward pass writes its output while the last one is still being sent",
          "parallel/channel/message_channel.cpp",
          "    input_.transfer.wait();\n    sent_output_.transfer.wait();\n",
          "    input_.transfer.wait();\n"),
    Break("stale_factor", "the sum of bf16 right factors stays unread: each rank decodes its own",
          "compress/codecs/low_rank_codec.cpp",
          "                  int ranks) override {\n    arrived(stream, right_);\n",
          "                  int ranks) override {\n"),
    Break("epilogue_begin", "the cool-down begins one pass late",
          "parallel/schedule/transfer_class.cpp",
          "i >= after_last_forward ? Phase::cooldown",
          "i > after_last_forward  ? Phase::cooldown"),
    Break("sum_scale", "every rank takes the whole decoded sum off its residual, not its share",
          "compress/codecs/low_rank_codec.cpp",
          "LowRankOutput::write, 1.0F / static_cast<float>(ranks));",
          "LowRankOutput::write, ranks > 0 ? 1.0F : 0.0F);"),
    Break("mask_column", "the first query of a panel sees the key after it",
          "core/kernels/attention/attention_forward_cpu.cpp",
          "    if (key + k <= query) {\n",
          "    if (key + k <= query + 1) {\n"),
    Break("swapped_ranks", "a sum of four ranks adds the last two in the other order",
          "core/comm/engine/ordered_sum.cpp",
          "        add(input(first + rank, part.begin), to.data(), count);\n",
          "        add(input(first + sizes_[0] + 1 - rank, part.begin), to.data(), count);\n"),
    Break("last_partial_bucket", "what remains of a background message after whole parts is dropped",
          "core/comm/engine/moves.cpp",
          "more = more || begin + longest < piece.bytes;",
          "more = more || begin + 2 * longest <= piece.bytes;"),
    Break("group_of_sum", "sums of groups arrive in the order of their distance, not of the groups",
          "core/comm/engine/collective_moves.cpp",
          "  const auto row = static_cast<std::size_t>(from < group_ ? from : from - 1);\n",
          "  const auto row = static_cast<std::size_t>(distance - 1);\n"),
    Break("neighbours_piece", "second moments are read where the tensor rank before has its own",
          "tools/run/checkpoint_parts.cpp",
          "    checkpoint.read_part(group + piece.parameter->spec.name,\n"
          "                         part.logical,\n",
          "    checkpoint.read_part(group + piece.parameter->spec.name,\n"
          "                         group == \"adam_v/\" ? part.local : part.logical,\n"),
    # More that would easily slip through.
    Break("bias_correction", "a resumed run corrects Adam's bias for one step too many",
          "tools/run/training_state.cpp",
          "  model.optimizer().set_step_count(checkpoint.updates().value_or(start.step));\n",
          "  model.optimizer().set_step_count(checkpoint.updates().value_or(start.step) + 1);\n"),
    Break("dropout_key", "dropout counts samples from the first one of a micro-batch",
          "core/kernels/elementwise/dropout_cpu.cpp",
          "  const std::uint64_t first_sample = args.key.first_sample + first_row / rows_per_sample;\n",
          "  const std::uint64_t first_sample = first_row / rows_per_sample;\n"),
    Break("weight_part_of_one", "weight gradients made later are those of the last micro-batch",
          "model/block_half.cpp",
          "  first_.backward_weight(pass.stream, y, later.d_wide, pass.accumulate);\n",
          "  first_.backward_weight(pass.stream, y, later.d_wide, Accumulate::no);\n"),
    Break("warm_start_unsaved", "right factors are not saved, so that a resumed run draws them anew",
          "tools/run/compression_state.cpp",
          "    if (state.saved) {\n",
          "    if (state.saved && !state.name.ends_with(\".right_factor\")) {\n"),
    Break("late_learning_rate", "the learning rate is the one of the step before",
          "optim/learning_rate.cpp",
          "  return std::clamp((static_cast<double>(step) - begin) / length, 0.0, 1.0);\n",
          "  return std::clamp((static_cast<double>(step - 1) - begin) / length, 0.0, 1.0);\n"),
    Break("overlapping_windows", "evaluated windows share their last token with the next one",
          "tools/infer/evaluation.cpp",
          "static_cast<std::uint64_t>(window * T);",
          "static_cast<std::uint64_t>(window * (T - 1));"),
    Break("stale_copies", "under zero1 an owner's bf16 part of the tied table stays that of step 1",
          "parallel/step/bucket_memory.cpp",
          "    tensor.weight_copy = elements(weight_share(bucket), place.weights);\n"
          "    return tensor;\n",
          "    if (plan_->buckets[bucket].kind != Kind::table) {\n"
          "      tensor.weight_copy = elements(weight_share(bucket), place.weights);\n"
          "    }\n"
          "    return tensor;\n"),
    Break("table_counted_twice", "the gradient norm counts both copies of the tied table",
          "parallel/sync/sync_generator.cpp",
          "      piece.counted = parameter.spec.trained && !piece.is_copy && same.rank == 0;\n",
          "      piece.counted = (!piece.is_copy || is_copy) && same.rank == 0;\n"),
    Break("evaluation_leaves_state", "an evaluation leaves its right factors behind",
          "parallel/step/mesh_model.cpp",
          "  double loss = executor_.evaluate(work_of(std::move(micro_batches)));\n"
          "  channels_.restore_state();\n",
          "  double loss = executor_.evaluate(work_of(std::move(micro_batches)));\n"),
    Break("same_sample_again", "random_k draws the same elements for every micro-batch",
          "compress/codecs/random_k_codec.cpp",
          "            low_word(key.micro_batch),\n",
          "            0,\n"),
    Break("round_at_once", "a late round moves the anchor at the end that it is sent at",
          "parallel/step/outer_loop.cpp",
          "  if (last || (is_whole && !config_.is_late())) {\n",
          "  if (last || is_whole) {\n"),
    Break("start_before_sum", "owners make the next start before end points have been added up",
          "parallel/step/background_round.cpp",
          "    gather(i, Follows::sum, [this, i, step, divisors] {\n",
          "    gather(i, Follows::nothing, [this, i, step, divisors] {\n"),
    Break("old_anchor_lost", "an owner measures what has been learned from the anchor after the step",
          "parallel/step/outer_loop.cpp",
          "    move_anchor(rounds_.last_end, OuterWrites::step_and_old_anchor);\n",
          "    move_anchor(rounds_.last_end, OuterWrites::step);\n    memory_.keep_anchor();\n"),
    Break("lead_counted_twice", "what an eager round was ahead of the anchor counts as learned in it",
          "parallel/step/outer_memory.cpp",
          "    accumulate(model_->stream(), lead(share), difference(share));\n",
          "    cast(model_->stream(), difference(share), difference(share));\n"),
    Break("other_fragment", "fragments travel in another turn than the schedule of rounds says",
          "parallel/sync/outer_plan.cpp",
          "    return {static_cast<int>(step / every % fragments)};\n",
          "    return {static_cast<int>((step / every + 1) % fragments)};\n"),
    Break("forgotten_debt", "a checkpoint leaves out what workers owe to their rounds",
          "tools/run/compression_state.cpp",
          "  states.insert(states.end(), rounds.begin(), rounds.end());\n",
          ""),
    Break("same_batches", "all workers train on the first one's samples",
          "tools/run/trainer.cpp",
          "(m * config_.parallel.data + model_.groups().replica()) * B;\n",
          "(m * config_.parallel.data + model_.groups().data_rank()) * B;\n"),
]
