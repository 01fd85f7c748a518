#include "core/comm/engine/moves.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/check.h"

namespace slackline {

void Step::add(const Piece& piece) {
  if (piece.bytes > 0) {
    pieces.push_back(piece);
  }
}

std::size_t Moves::bytes_sent() const {
  std::size_t bytes = 0;
  for (const Step& step : steps) {
    for (const Piece& piece : step.pieces) {
      bytes += piece.way == Message::Way::send ? piece.bytes : 0;
    }
  }
  return bytes;
}

std::size_t Moves::bytes_sent_across(int rank, int ranks_in_group) const {
  std::size_t bytes = 0;
  for (const Step& step : steps) {
    for (const Piece& piece : step.pieces) {
      const bool leaves = piece.peer / ranks_in_group != rank / ranks_in_group;
      bytes += piece.way == Message::Way::send && leaves ? piece.bytes : 0;
    }
  }
  return bytes;
}

void cut(Moves& moves, std::size_t longest) {
  SL_CHECK(longest > 0, "messages of nothing");
  for (Step& step : moves.steps) {
    const std::vector<Piece> whole = std::exchange(step.pieces, {});
    bool more = true;
    for (std::size_t begin = 0; more; begin += longest) {
      more = false;
      for (const Piece& piece : whole) {
        if (begin > 0 && begin >= piece.bytes) {
          continue;
        }
        Piece& part = step.pieces.emplace_back(piece);
        part.data = piece.bytes > 0 ? piece.data + begin : piece.data;
        part.bytes = std::min(longest, piece.bytes - begin);
        more = more || begin + longest < piece.bytes;
      }
    }
  }
}

std::byte* byte_of(const Tensor& data, std::size_t element) {
  return static_cast<std::byte*>(data.raw()) + element * size_of(data.dtype());
}

Piece send_piece(int to, const Tensor& data, Slice part, Lane lane) {
  return {.way = Message::Way::send,
          .lane = lane,
          .peer = to,
          .data = byte_of(data, part.begin),
          .bytes = part.count() * size_of(data.dtype())};
}

Piece receive_piece(int from, const Tensor& data, Slice part, Lane lane) {
  Piece piece = send_piece(from, data, part, lane);
  piece.way = Message::Way::receive;
  return piece;
}

void check_sum(const Tensor& data, SumOrder order, int size) {
  const DType dtype = data.dtype();
  SL_CHECK(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64,
           "sums over ranks take f32, bf16 and f64; got " + std::string(name_of(dtype)));
  SL_CHECK(order.fits(size),
           "runs of " + std::to_string(order.runs[0]) + " x " + std::to_string(order.runs[1]) +
               " ranks must divide the ranks of a sum; got " + std::to_string(size));
}

}  // namespace slackline
