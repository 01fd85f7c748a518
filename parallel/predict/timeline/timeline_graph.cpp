#include "parallel/predict/timeline/timeline_graph.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

namespace slackline::schedule {

namespace {

class GraphBuilder {
 public:
  GraphBuilder(const Schedule& schedule, const CostModel& costs)
      : schedule_(schedule),
        costs_(costs),
        op_nodes_(kNumKinds * index(schedule.num_stages() * schedule.num_micro_batches), -1),
        transfer_nodes_(op_nodes_) {}

  [[nodiscard]] Graph build() {
    graph_.num_resources = 2 * schedule_.num_ranks;  // data axes come first, then codecs
    graph_.rank_ops.resize(index(schedule_.num_ranks));
    add_ops();
    add_transfers();
    add_data_edges();
    add_gathers();
    std::vector<int> gradients = add_reductions();
    add_embedding_sync(gradients);
    add_update(gradients);
    return std::move(graph_);
  }

 private:
  static constexpr std::size_t kNumKinds = index(static_cast<int>(OpKind::wait)) + 1;

  // Returns the index of an op in a table of all.
  [[nodiscard]] std::size_t key(OpKind kind, int chunk, int micro_batch) const {
    return index((static_cast<int>(kind) * schedule_.num_stages() + chunk) *
                     schedule_.num_micro_batches +
                 micro_batch);
  }

  int add(GraphNode node) {
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size()) - 1;
  }

  void add_edge(int from, int to, Seconds lag = {}, EdgeKind kind = EdgeKind::data) {
    graph_.nodes[index(to)].node.after.push_back({from, lag, kind});
  }

  // Returns an op's seconds, without what its input takes to decode before.
  [[nodiscard]] Seconds compute_of(int id) const { return graph_.nodes[index(id)].timing.fixed; }

  [[nodiscard]] const ChunkCosts& chunk_costs(int chunk) const {
    return costs_.chunks[index(chunk)];
  }

  // Program order: an op starts when the one before it on its rank has ended. Ops are the first
  // nodes, one rank's list after another's, which tensor_slacks() counts on.
  void add_ops() {
    for (int rank = 0; rank < schedule_.num_ranks; ++rank) {
      std::vector<int>& list = graph_.rank_ops[index(rank)];
      list.reserve(schedule_.ranks[index(rank)].size());
      for (const Op& op : schedule_.ranks[index(rank)]) {
        const int id = add({.node = {.kind = NodeKind::op, .rank = rank, .peer = rank, .op = op},
                            .timing = {.fixed = op_seconds(costs_, op)}});
        if (!list.empty()) {
          add_edge(list.back(), id);
        }
        list.push_back(id);
        if (op.kind != OpKind::wait) {
          op_nodes_[key(op.kind, op.chunk, op.micro_batch)] = id;
        }
      }
    }
  }

  void add_transfers() {
    for (int rank = 0; rank < schedule_.num_ranks; ++rank) {
      const std::vector<int>& list = graph_.rank_ops[index(rank)];
      const std::vector<Phase> phases = phases_of(schedule_.ranks[index(rank)]);
      for (std::size_t i = 0; i < list.size(); ++i) {
        const Op op = graph_.nodes[index(list[i])].node.op;
        if (is_send(op.kind)) {
          add_transfer(list[i], op, phases[i]);
        }
      }
    }
  }

  void add_transfer(int send, const Op& op, Phase phase) {
    const int from = schedule_.rank_of(op.chunk);
    const int to = schedule_.rank_of(peer_chunk(op));
    const TransferId sent = id_of_send(op);
    const TransferClass members{.site = sent.site, .stage = sent.stage, .phase = phase};
    const Bytes plain = transfer_bytes(costs_, sent);
    const double share = cost_of_class(costs_, members).share;
    const Bytes bytes{
        static_cast<std::size_t>(std::lround(share * static_cast<double>(plain.value)))};
    const Link& link = link_between(costs_, from, to);
    const bool beside = !costs_.codecs_take_compute;
    const int id = add({.node = {.kind = NodeKind::transfer,
                                 .rank = from,
                                 .peer = to,
                                 .op = op,
                                 .members = members,
                                 .bytes = bytes},
                        .timing = {.bytes = service_seconds(link, static_cast<double>(plain.value)),
                                   .arrival = link.latency,
                                   .decodes = beside},
                        .has_codec = true,
                        .resources = link_resources(link, from, to)});
    add_edge(send, id, {}, beside ? EdgeKind::encode : EdgeKind::data);
    const bool forward = op.kind == OpKind::send_forward;
    const OpKind post = forward ? OpKind::receive_forward : OpKind::receive_backward;
    const std::size_t receive = key(post, peer_chunk(op), op.micro_batch);
    if (static_cast<double>(bytes.value) >= link.eager_bytes) {
      add_edge(op_nodes_.at(receive), id);
    }
    if (!beside) {
      graph_.nodes[index(send)].timing.encodes = true;
      work_for(send, members);
    }
    transfer_nodes_[key(op.kind, op.chunk, op.micro_batch)] = id;
    transfer_nodes_[receive] = id;
  }

  [[nodiscard]] std::array<int, 2> link_resources(const Link& link, int from, int to) {
    const auto [out, in] = link.ends;
    if (out >= 0) {
      return {resource_of({out, kNoResource}),
              in < 0 || in == out ? kNoResource : resource_of({in, kNoResource})};
    }
    const bool swap = link.duplex == Duplex::half && from > to;
    return {resource_of(swap ? std::pair{to, from} : std::pair{from, to}), kNoResource};
  }

  // Returns the resource of an end of links, which its number names, or of a pair of ranks. Buckets
  // have ends of their own, for messages between stages go before them.
  [[nodiscard]] int resource_of(std::pair<int, int> server) {
    const auto [found, added] = link_resources_.emplace(server, graph_.num_resources);
    graph_.num_resources += added ? 1 : 0;
    return found->second;
  }

  // Compute waits for its input, and `wait` for every transfer posted since the wait before it.
  void add_data_edges() {
    for (const std::vector<int>& list : graph_.rank_ops) {
      std::vector<int> posted;
      for (const int id : list) {
        const Op op = graph_.nodes[index(id)].node.op;
        if (is_send(op.kind) || is_receive(op.kind)) {
          posted.push_back(transfer_nodes_.at(key(op.kind, op.chunk, op.micro_batch)));
        } else if (op.kind == OpKind::wait) {
          for (const int transfer : posted) {
            add_edge(transfer, id);
          }
          posted.clear();
        } else {
          add_input_edge(id, op);
        }
      }
    }
  }

  // An op encodes or decodes a message of the class.
  void work_for(int id, const TransferClass& members) {
    graph_.nodes[index(id)].node.members = members;
    graph_.nodes[index(id)].has_codec = true;
  }

  // What an op computes with arrives; without a core of its own it is decoded first.
  void add_arrival_edge(std::size_t receive, int id) {
    const int transfer = transfer_nodes_.at(receive);
    add_edge(transfer, id);
    if (costs_.codecs_take_compute) {
      graph_.nodes[index(id)].timing.decodes = true;
      work_for(id, graph_.nodes[index(transfer)].node.members);
    }
  }

  void add_input_edge(int id, const Op& op) {
    const int k = op.micro_batch;
    if (op.kind == OpKind::forward && schedule_.has_transfer_before(op.chunk)) {
      add_arrival_edge(key(OpKind::receive_forward, op.chunk, k), id);
    } else if (op.kind == OpKind::forward && op.chunk > 0) {
      add_edge(op_nodes_.at(key(OpKind::forward, op.chunk - 1, k)), id);
    } else if (makes_input_gradient(op.kind) && schedule_.has_transfer_after(op.chunk)) {
      add_arrival_edge(key(OpKind::receive_backward, op.chunk, k), id);
    } else if (makes_input_gradient(op.kind) && op.chunk + 1 < schedule_.num_stages()) {
      add_edge(op_nodes_.at(key(op.kind, op.chunk + 1, k)), id);
    }
  }

  // The nodes of a once-a-step transfer, one after the other.
  struct Chain {
    int first = 0;
    int last = 0;
  };

  [[nodiscard]] int codec_resource(int rank) const { return schedule_.num_ranks + rank; }

  // `whole`: the transfer in one node, with its links, of which `codec_share` of the class' codec
  // seconds are.
  Chain add_chain(const GraphNode& whole, double codec_share) {
    const auto [rank, peer] = std::pair{whole.node.rank, whole.node.peer};
    GraphNode codec{
        .node = whole.node,
        .has_codec = true,
        .resources = {codec_resource(rank), peer == rank ? kNoResource : codec_resource(peer)}};
    codec.node.part = NodePart::encode;
    codec.timing.encode_share = codec_share;
    Chain chain{.first = add(codec)};
    chain.last = chain.first;
    const auto append = [&](const GraphNode& node) {
      const int id = add(node);
      add_edge(std::exchange(chain.last, id), id);
    };
    GraphNode served = whole;
    const bool two = std::max(served.timing.exchanges.plain, served.timing.exchanges.sum) > 1;
    served.timing.half = two ? NodeTiming::Half::first : NodeTiming::Half::both;
    served.timing.bytes = (two ? 0.5 : 1.0) * served.timing.bytes;
    append(served);
    if (two) {
      served.node.part = NodePart::further;
      served.timing.half = NodeTiming::Half::second;
      append(served);
    }
    codec.node.part = NodePart::decode;
    codec.timing = {.decode_share = codec_share};
    append(codec);
    return chain;
  }

  // A stage's codec seconds are spread evenly over the buckets of a class.
  Chain add_bucket(NodeKind kind, int chunk, int number, const std::vector<Bucket>& buckets) {
    const Bucket& bucket = buckets[index(number)];
    const bool table = kind == NodeKind::data_reduction && bucket.table;
    const auto count = std::count_if(buckets.begin(), buckets.end(), [&](const Bucket& other) {
      return bucket.table == other.table && bucket.tail == other.tail;
    });
    const Site site = table                              ? Site::embedding
                      : kind == NodeKind::data_reduction ? Site::data_gradient
                                                         : Site::parameter_gather;
    const int rank = schedule_.rank_of(chunk);
    const int end = bucket.end < 0 ? kNoResource : resource_of({bucket.end, kEndOfBuckets});
    return add_chain({.node = {.kind = kind,
                               .rank = rank,
                               .peer = rank,
                               .op = {.chunk = chunk, .micro_batch = number},
                               .members = {.site = site,
                                           .stage = chunk,
                                           .phase = bucket.tail ? Phase::tail : Phase::step}},
                      .timing = {.bytes = bucket.seconds, .exchanges = bucket.exchanges},
                      .has_codec = true,
                      .resources = {rank, end}},
                     1.0 / static_cast<double>(count));
  }

  // Adds gathers in virtual-stage order, which is the order of a rank's first uses.
  void add_gathers() {
    for (int chunk = 0; chunk < schedule_.num_stages(); ++chunk) {
      const int use = op_nodes_.at(key(OpKind::forward, chunk, 0));
      int number = 0;
      const std::vector<Bucket>& buckets = chunk_costs(chunk).parameter_gather;
      for (const Bucket& bucket : buckets) {
        const Chain chain = add_bucket(NodeKind::parameter_gather, chunk, number++, buckets);
        add_edge(chain.last, use, -bucket.at * compute_of(use));
      }
    }
  }

  // Returns what the gradient norm waits for: the end of each rank's list and all buckets.
  [[nodiscard]] std::vector<int> add_reductions() {
    std::vector<int> gradients;
    for (const std::vector<int>& list : graph_.rank_ops) {
      gradients.push_back(list.back());
    }
    const int last = schedule_.num_micro_batches - 1;
    for (int chunk = 0; chunk < schedule_.num_stages(); ++chunk) {
      const int weight = op_nodes_.at(key(OpKind::backward_weight, chunk, last));
      const int made = weight >= 0 ? weight : op_nodes_.at(key(OpKind::backward, chunk, last));
      int number = 0;
      const std::vector<Bucket>& buckets = chunk_costs(chunk).data_reduction;
      for (const Bucket& bucket : buckets) {
        const Chain chain = add_bucket(NodeKind::data_reduction, chunk, number++, buckets);
        add_edge(made, chain.first, bucket.before - (1.0 - bucket.at) * compute_of(made));
        gradients.push_back(chain.last);
      }
    }
    return gradients;
  }

  void add_embedding_sync(std::vector<int>& gradients) {
    if (costs_.embedding_sync == Seconds{}) {
      return;
    }
    const int last = schedule_.num_ranks - 1;
    const Chain chain = add_chain(
        {.node = {.kind = NodeKind::embedding_sync,
                  .rank = 0,
                  .peer = last,
                  .members = {.site = Site::embedding, .stage = 0, .phase = Phase::tail}},
         .timing = {.bytes = costs_.embedding_sync, .exchanges = costs_.embedding_exchanges},
         .has_codec = true,
         .resources = {0, last > 0 ? last : kNoResource}},
        1.0);
    for (const int gradient : gradients) {
      const int rank = graph_.nodes[index(gradient)].node.rank;
      if (rank == 0 || rank == last) {
        add_edge(gradient, chain.first);
      }
    }
    gradients.push_back(chain.last);
  }

  void add_update(const std::vector<int>& gradients) {
    const int norm =
        add({.node = {.kind = NodeKind::gradient_norm}, .timing = {.fixed = costs_.gradient_norm}});
    for (const int gradient : gradients) {
      add_edge(gradient, norm);
    }
    for (int rank = 0; rank < schedule_.num_ranks; ++rank) {
      const int id = add({.node = {.kind = NodeKind::optimizer, .rank = rank, .peer = rank},
                          .timing = {.fixed = costs_.optimizer}});
      add_edge(norm, id);
    }
  }

  const Schedule& schedule_;
  const CostModel& costs_;
  Graph graph_;
  std::vector<int> op_nodes_;        // by key; -1: none
  std::vector<int> transfer_nodes_;  // by keys of the send and of the receive
  std::map<std::pair<int, int>, int> link_resources_;
  static constexpr int kEndOfBuckets = kNoResource - 1;
};

}  // namespace

Graph make_graph(const Schedule& schedule, const CostModel& costs) {
  return GraphBuilder(schedule, costs).build();
}

}  // namespace slackline::schedule
