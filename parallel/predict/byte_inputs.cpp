#include "parallel/predict/byte_inputs.h"

#include "core/comm/collective_bytes.h"
#include "parallel/mesh/stage_split.h"

namespace slackline {

namespace {

std::size_t size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

schedule::Bytes all_reduce_of_ranks(std::size_t elements, std::size_t element_bytes, int ranks) {
  std::size_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    bytes += bytes_sent_by({.kind = TransferRecord::Kind::all_reduce,
                            .elements = elements,
                            .element_size = element_bytes},
                           rank,
                           ranks);
  }
  return {bytes};
}

}  // namespace

schedule::ByteInputs byte_inputs(const MeshJob& job) {
  const ParallelConfig& parallel = job.parallel;
  schedule::ByteInputs inputs{
      .p = parallel.pipeline,
      .t = parallel.tensor,
      .d = parallel.data,
      .m = job.num_micro_batches,
      .B = size(job.micro_batch.B),
      .T = size(job.micro_batch.T),
      .C = size(job.model.hidden),
      .F = size(job.model.ffn),
      .V = size(job.model.vocab),
      .element_bytes = size_of(job.precision),
      .sequence_parallel = parallel.sequence_parallel ? schedule::SequenceParallel::on
                                                      : schedule::SequenceParallel::off,
      .recompute = job.model.recompute == Recompute::block ? schedule::RecomputeBlocks::on
                                                           : schedule::RecomputeBlocks::off,
      .tables = job.model.tie_embeddings ? schedule::Tables::tied : schedule::Tables::untied,
      .store = parallel.data_strategy == DataStrategy::zero1 ? schedule::GradientStore::sharded
                                                             : schedule::GradientStore::replicated,
      .table_sync = parallel.embedding_sync == EmbeddingSync::fused ? schedule::TableSync::fused
                                                                    : schedule::TableSync::separate,
      .all_reduce = all_reduce_of_ranks};
  for (const ChunkSlice& chunk : split_layers(job.model, parallel)) {
    inputs.layers.push_back(chunk.num_layers());
  }
  return inputs;
}

double updated_elements(const MeshJob& job, int stage) {
  const schedule::ByteInputs inputs = byte_inputs(job);
  const bool sharded = inputs.store == schedule::GradientStore::sharded;
  const double shards = sharded ? inputs.d : 1.0;
  double elements = static_cast<double>(schedule::data_elements(inputs, stage)) / shards;
  const bool end = stage == 0 || stage + 1 == static_cast<int>(inputs.layers.size());
  if (inputs.p > 1 && inputs.tables == schedule::Tables::tied && end) {
    const std::size_t table = inputs.V * inputs.C / size(inputs.t);
    const bool fused = inputs.table_sync == schedule::TableSync::fused;
    elements += static_cast<double>(table) / (sharded && fused ? 2.0 * shards : shards);
  }
  return elements;
}

}  // namespace slackline
