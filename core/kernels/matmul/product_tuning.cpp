#include "core/kernels/matmul/product_tuning.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <mutex>

#include "core/algorithm_cache.h"
#include "core/cuda/check_cuda.h"
#include "core/cuda/cuda_device.h"

// The library ranks its algorithms by a model of the card, and the first is often not the fastest.
// So a product that is large enough is tried with the first few, once for each card and version of
// the library.
//
// Ranks of a host take turns by the cache's lock, so that on a card that they share trials do not
// disturb each other. What a stream still has to do may depend on other ranks, and these may wait
// for the lock: so the stream is waited for before the lock is taken. For the same reason nothing
// that waits for the whole device, as cudaFree does, may run under it.
namespace slackline::cuda {

namespace {

constexpr int kSuggestions = 8;

// Below, a launch takes longer than the product, whichever algorithm is taken: there are to be few
// launches, so the library's first suggestion is taken with all that it does.
constexpr std::size_t kLeastMultiplications = std::size_t{1} << 26U;

using Choice = AlgorithmCache::Choice;
using Algorithm = AlgorithmCache::Algorithm;

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

Algorithm words_of(const cublasLtMatmulAlgo_t& algorithm) {
  return std::to_array(algorithm.data);
}

cublasLtMatmulAlgo_t algorithm_of(const Algorithm& words) {
  cublasLtMatmulAlgo_t algorithm{};
  std::copy(words.begin(), words.end(), algorithm.data);
  return algorithm;
}

std::string file_name(const std::string& owner) {
  std::string name;
  for (const char letter : owner) {
    const auto code = static_cast<unsigned char>(letter);
    if (std::isalnum(code) != 0) {
      name += static_cast<char>(std::tolower(code));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name + ".json";
}

// The cache of this thread's device; threads with devices of one kind share it.
AlgorithmCache& cache() {
  static std::mutex mutex;
  static std::map<std::string, AlgorithmCache> caches;
  thread_local AlgorithmCache* const own = [] {
    const std::string owner =
        "cuBLASLt " + std::to_string(cublasLtGetVersion()) + ", " + device_text();
    const std::string directory = user_cache_directory();
    const std::string path = directory.empty() ? "" : directory + "/" + file_name(owner);
    const std::scoped_lock lock(mutex);
    return &caches.try_emplace(owner, path, owner).first->second;
  }();
  return *own;
}

// Memory that is taken and given back in the order of the stream, which waits for nothing else on
// the device.
class StreamMemory {
 public:
  explicit StreamMemory(StreamView stream) : stream_(stream.cuda().handle()) {}

  ~StreamMemory() {
    if (memory_ != nullptr) {
      cudaFreeAsync(memory_, stream_);
    }
  }

  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;

  // Null where the device has not that much left, or cannot do it.
  [[nodiscard]] void* allocate(std::size_t bytes) {
    if (cudaMallocAsync(&memory_, bytes, stream_) != cudaSuccess) {
      cudaGetLastError();
      memory_ = nullptr;
    }
    return memory_;
  }

 private:
  cudaStream_t stream_;
  void* memory_ = nullptr;
};

// The memory of a matrix, or of a vector, with what lies between its rows.
struct Span {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;

  Span(const Tensor& tensor, std::int64_t row)
      : begin(static_cast<const std::byte*>(tensor.raw())),
        bytes(tensor.empty() ? 0
                             : tensor.bytes() + static_cast<std::size_t>((tensor.dim(0) - 1) *
                                                                         (row - tensor.dim(1))) *
                                                    size_of(tensor.dtype())) {}

  explicit Span(const Tensor& tensor)
      : begin(static_cast<const std::byte*>(tensor.raw())),
        bytes(tensor.empty() ? 0 : tensor.bytes()) {}

  [[nodiscard]] bool overlaps(const Span& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
};

// Whether a trial would write over what it reads.
bool is_in_place(const CublasProduct& product) {
  const MatmulArgs& args = product.args();
  const Span c(args.c, args.c_row());
  const Span output(product.output(), args.c_row());
  const std::array inputs{
      Span(args.a, args.a_row()), Span(args.b), Span(args.bias), Span(args.gelu_input)};
  return std::any_of(inputs.begin(), inputs.end(), [&](const Span& input) {
    return input.overlaps(c) || input.overlaps(output);
  });
}

// The fastest of the suggestions and what the trial does instead. `output`: null for the product's
// own.
Choice measured(StreamView stream,
                const CublasProduct& product,
                std::span<const cublasLtMatmulAlgo_t> suggestions,
                const ProductTrial& trial,
                void* output) {
  std::vector<Choice> choices;
  std::vector<std::function<bool()>> runs;
  if (trial.instead) {
    choices.emplace_back();
    runs.emplace_back([&] {
      trial.instead(output);
      return true;
    });
  }
  for (const cublasLtMatmulAlgo_t& suggestion : suggestions) {
    choices.emplace_back(words_of(suggestion));
    runs.emplace_back([&, suggestion = &suggestion] {
      if (product.queue(stream, *suggestion, output) != CUBLAS_STATUS_SUCCESS) {
        return false;
      }
      if (trial.after) {
        trial.after();
      }
      return true;
    });
  }
  return choices[worth_taking(seconds_of(stream, runs))];
}

Choice chosen(StreamView stream,
              const CublasProduct& product,
              const ProductProblem& problem,
              const std::function<ProductTrial()>& make_trial) {
  const std::vector<cublasLtMatmulAlgo_t> suggestions = product.suggestions(kSuggestions);
  if (suggestions.empty()) {
    return std::nullopt;
  }
  const Choice suggested = words_of(suggestions[0]);
  if (problem.M * problem.N * problem.K < kLeastMultiplications) {
    return suggested;
  }
  const Choice first = make_trial ? Choice() : suggested;
  if (problem.same_bits == SameBits::on_all_hosts || (suggestions.size() == 1 && !make_trial)) {
    return first;
  }
  const ProductTrial trial = make_trial ? make_trial() : ProductTrial{};
  // What adds to C writes elsewhere; anything else writes C as often as one likes.
  StreamMemory scratch(stream);
  const bool adds = product.args().accumulate == Accumulate::yes;
  void* const output = adds ? scratch.allocate(product.output_bytes()) : nullptr;
  const bool can_try = !is_in_place(product) && (!adds || output != nullptr);
  stream.synchronize();
  return cache().choose(
      {.problem = text_of(problem),
       .first = first,
       .is_usable =
           [&](const Choice& choice) {
             return choice ? product.takes(algorithm_of(*choice)) : bool(trial.instead);
           },
       // The first is kept like any other choice where there is no memory for a trial: another run
       // may have it, and has to give the same bits.
       .measure =
           [&] {
             return can_try ? measured(stream, product, suggestions, trial, output) : first;
           }});
}

}  // namespace

std::vector<double> seconds_of(StreamView stream, std::span<const std::function<bool()>> runs) {
  constexpr int kRounds = 3;
  constexpr int kRunsInARow = 5;  // of a round: hides how long a launch takes
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> seconds(runs.size(), kNever);
  std::vector<bool> works;
  for (const std::function<bool()>& run : runs) {
    works.push_back(run());
  }
  CudaEvent begin(CudaEvent::Use::timing);
  CudaEvent end(CudaEvent::Use::timing);
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (!works[i]) {
        continue;
      }
      begin.record(stream.cuda());
      for (int repeat = 0; repeat < kRunsInARow; ++repeat) {
        works[i] = runs[i]() && works[i];
      }
      end.record(stream.cuda());
      end.wait();
      seconds[i] = std::min(seconds[i], end.seconds_since(begin) / kRunsInARow);
    }
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!works[i]) {
      seconds[i] = kNever;
    }
  }
  return seconds;
}

std::optional<cublasLtMatmulAlgo_t> algorithm_for(StreamView stream,
                                                  const CublasProduct& product,
                                                  const std::function<ProductTrial()>& trial) {
  thread_local std::map<ProductProblem, Choice> known;
  const ProductProblem problem = product.problem();
  auto found = known.find(problem);
  if (found == known.end()) {
    found = known.emplace(problem, chosen(stream, product, problem, trial)).first;
  }
  return found->second ? std::optional(algorithm_of(*found->second)) : std::nullopt;
}

}  // namespace slackline::cuda
