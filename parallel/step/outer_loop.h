#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/update/outer_step.h"
#include "optim/outer_config.h"
#include "parallel/channel/outer_channel.h"
#include "parallel/step/background_round.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_memory.h"
#include "parallel/step/round_reach.h"
#include "parallel/step/round_travel.h"
#include "parallel/sync/outer_plan.h"

namespace slackline {

// What one worker knows at the end of a round.
struct RoundFacts {
  double loss = 0.0;    // of the step that ends it
  bool stop = false;    // some rank of it was told to stop
  bool failed = false;  // it trains no further: something is not finite
};

// What all workers know of the end of a round.
struct RoundEnd {
  std::vector<double> losses{};   // of workers
  bool stop = false;              // some worker was told to stop
  std::vector<int> failed{};      // workers that train no further
  std::vector<int> not_finite{};  // workers whose difference is not: the round is left out
  double penalty = 1.0;           // what a late difference was divided by; the largest of tensors
  // RMS of workers' weights from their mean, as they were last sent. NaN where the checkpoint that
  // a run goes on from has squares of what this run does not send.
  double distance = 0.0;
  std::int64_t period = 0;  // steps of the round that begins
  // Share of the momentum's elements that the bound holds; absent where there is none.
  std::optional<double> clipped{};
};

// Counts that a worker keeps by itself; the others know nothing of them in the middle of a round.
struct WorkerProgress {
  std::int64_t updates = 0;  // of its optimizer
  std::int64_t skips = 0;    // skipped steps in a row up to the last one
};

// The step that an anchor still lacks, by a round that had arrived when a checkpoint was written.
struct OwedStep {
  // Returns the step of a parameter.
  [[nodiscard]] OuterStep of(const std::string& parameter) const;

  OuterStep step{};
  std::map<std::string, double> divisors{};  // of scales, by parameter; of others it is 1
  std::optional<double> norm_bound{};        // of its momentum; absent: it has none
};

// Outer rounds of a worker: groups of data ranks train apart, what each has learned in a round is
// added up over workers while the next one computes, or at once, and moves the anchor that all of
// them start from (docs/outer.md). Nothing else crosses between workers, but one small exchange of
// facts at the end of a round.
//
// A rank keeps anchor and momentum of its share of the model, and sends the anchor's difference to
// its weights to the ranks at its place in other workers; where updates are made on the way
// (OuterConfig::updates_apart), it keeps its part of them alone and sends weights. Refers to the
// model, which must outlive it. Used by the rank's thread; every rank of the run calls alike.
class OuterLoop {
 public:
  struct Options {
    OuterConfig config{};
    std::function<double(std::int64_t step)> rate{};  // the optimizer's, of a step
    std::optional<CodecSetting> codec{};              // of what travels; absent: it is plain
    std::int64_t plain_steps = 0;                     // in these first steps, too
  };

  // The anchor is the model's weights.
  // REQUIRES: the model's groups have workers, and config.is_on().
  OuterLoop(const Options& options, MeshModel& model);
  // Waits for what travels, so that no rank waits for this one's codecs. That takes no time where
  // the world has failed.
  ~OuterLoop();
  OuterLoop(const OuterLoop&) = delete;
  OuterLoop& operator=(const OuterLoop&) = delete;

  // The weights as they are become the anchor, and the momentum 0; a round begins behind `step`.
  void restart(std::int64_t step);

  [[nodiscard]] bool ends_round(std::int64_t step) const { return rounds_.ends_with(step); }

  // Called after every update of the model, before its round ends: notes how far it went, where
  // that counts.
  void note_update() { reach_.note_update(); }

  // Called after every other step: notes when the transfers under way have ended.
  void look();

  // Ends a round after the update of its last step, which has published nothing. Afterwards weights
  // are where the next round begins, and on their way to whoever reads them: at the anchor, ahead
  // of it where rounds are eager, and with fragments on their own way but for what has arrived. The
  // `last` round of a run is waited for and enters the anchor too, or the anchor is the mean of its
  // end points (OuterEnding); weights are the anchor then. Blocks
  // until the round that travels has arrived.
  [[nodiscard]] RoundEnd end_round(std::int64_t step, const RoundFacts& own, bool last);

  [[nodiscard]] const OuterRounds& rounds() const { return rounds_; }

  // Returns how the rounds of the last end travelled; nothing where none was made since the last
  // call.
  [[nodiscard]] RoundTravels take_travels() { return std::exchange(ended_, {}); }

  // Takes a number that all ranks of a worker have. All ranks of the run call it.
  [[nodiscard]] double mean_over_workers(double number);

  // Takes numbers that all ranks of a worker have, and returns every worker's, one worker's behind
  // the other's. All ranks of the run call it.
  [[nodiscard]] std::vector<double> of_workers(std::span<const double> own);

  // Gives weights and anchor each other's values, and publishes the weights: to evaluate the anchor
  // behind `step`, and back. All ranks of the run call it; where owners keep the anchor, it is
  // waited for, as the round under way is, but not right behind a round's end, where weights are
  // the anchor.
  void exchange_anchor(std::int64_t step);

  // Takes seconds that are no step's, as those of a save, out of what a step is reckoned to take.
  void leave_out(double seconds);

  // Waits for the round under way, so that state() is whole. Changes no result.
  void settle();
  // Has every rank know what state_text() says of others. All ranks of the run call it.
  // REQUIRES: settle() has been called.
  void gather_state();

  // What a rank keeps of its shares, for checkpoints. Views.
  struct State {
    const OptimizerPiece* piece = nullptr;
    OuterShare share{};
    Tensor anchor{};
    Tensor momentum{};
    Tensor difference{};  // sum over workers of the round that has arrived; empty: none has
    Tensor lead{};        // this worker's own; empty: rounds begin at the anchor
    bool saved = false;   // by this rank, for all workers; leads apart
  };

  // What of it matters; all of it, to be loaded.
  [[nodiscard]] std::vector<State> state();
  [[nodiscard]] std::vector<State> all_state();

  // Returns views of what codecs carry from round to round. REQUIRES: settle() has been called.
  [[nodiscard]] std::vector<ChannelState> codec_state() const;

  // Writes the rest of the state as a JSON text, and what each worker has done, and reads it back.
  // REQUIRES of state_text(): gather_state() has been called; of the text: state_text() made it, of
  // as many workers, and what state() names is loaded.
  [[nodiscard]] std::string state_text(std::span<const WorkerProgress> workers) const;
  void load(const std::string& text);
  // Brings the momentum of a text's run into this method's units. load() does it, too.
  void convert_momentum(const std::string& text);

  // How many workers made a text; 0: an empty text, for ranks that all step together.
  [[nodiscard]] static int workers_of(const std::string& text);
  // Throws ConfigError where as many workers cannot go on from it under this config, and FileError
  // where no run of `step` steps can have made it.
  static void require_goes_on(const OuterConfig& config,
                              const std::string& text,
                              std::int64_t step);
  // Returns the counts of a worker that helped to make a text; nothing where the text has none.
  [[nodiscard]] static std::optional<WorkerProgress> progress_of(const std::string& text,
                                                                 int worker);
  // Whether the text is of a step that ends no round, or of one whose round is yet to move the
  // anchor.
  [[nodiscard]] static bool lacks_end(const std::string& text, std::int64_t step);
  // Whether the workers that made a text began their rounds ahead of the anchor.
  [[nodiscard]] static bool has_leads(const std::string& text);
  // Returns the owed step of a text; nothing where no round had arrived.
  [[nodiscard]] static std::optional<OwedStep> owed_step(const std::string& text);
  // Makes that step, with momentum and differences of state() and the weights as anchor, where
  // other numbers of workers go on: of the parameters that owe it.
  void make_owed_step(const OwedStep& owed, const std::function<bool(const std::string&)>& owes);

 private:
  // What travels, or would.
  [[nodiscard]] RoundTransfer& transfer() const;

  // Whether a round is yet to be waited for. A start that travels once more is none.
  [[nodiscard]] bool is_under_way() const { return !has_arrived_ && transfer().is_under_way(); }

  void send(int fragment,
            std::int64_t step,
            OuterChannel::Coding coding = OuterChannel::Coding::by_codec);
  void note_sending(int fragment, std::int64_t step);
  void run_codecs(const Workers& workers);
  void finish_round();
  // Waits for fragments that the end with this step has sent, each of which moves its anchor.
  void finish_sent(const std::vector<int>& fragments, std::int64_t step);
  // Waits for what travels, and returns for how many seconds. Those are no step's.
  double wait_for_round();
  void note_arrival();
  // Notes what has become of the round that this end sent, if it sent one.
  void note_end(std::int64_t step);
  // In whose steps SlowMo counts its momentum; nothing of methods that count in parameters'.
  [[nodiscard]] std::optional<double> momentum_rate() const;
  // The optimizer's rate that counts for a round that ends with the step.
  [[nodiscard]] double rate_of(std::int64_t step) const;
  // Its step, without the penalty.
  [[nodiscard]] OuterStep step_of(std::int64_t step) const;
  // Moves the anchor of the fragment that travels by the differences that have arrived, of a round
  // that ended with `step`. Weights become the anchor, but for a share `mix` of themselves.
  void move_anchor(std::int64_t step, OuterWrites writes, double mix = 0.0);
  // Notes how many elements of the momentum the bound of each holds.
  void note_clipped();
  // Returns what the momentum that this step makes is to be multiplied with, so that it is no
  // longer than the norm that is allowed; 1 where none is.
  double shrink_of(const OuterStep& move, const std::vector<double>& divisors);
  // Puts leads where the step to come should move the anchor (docs/outer.md, "Eager rounds").
  void take_leads(std::int64_t step);
  // Divisors of a late difference, by parameter of the model.
  [[nodiscard]] std::vector<double> penalties() const;
  [[nodiscard]] RoundEnd end_round_of_differences(std::int64_t step,
                                                  const RoundFacts& own,
                                                  bool last);
  [[nodiscard]] RoundEnd end_round_in_background(std::int64_t step,
                                                 const RoundFacts& own,
                                                 bool last);
  [[nodiscard]] RoundEnd end_with_mean(std::int64_t step, const RoundFacts& own);
  // `sent_squares`: of what this rank is about to send.
  [[nodiscard]] RoundEnd agree(const RoundFacts& own, double sent_squares, bool last);
  void choose_period(std::span<const double> round_seconds, double step_seconds);
  void publish();
  // A sum over all ranks, which workers come to at their own pace: a faster one waits for others up
  // to as long again as it has gone since they met last, beside what any wait may take.
  void sum_over_all(std::span<double> numbers, const char* what);

  OuterConfig config_;
  std::function<double(std::int64_t step)> rate_;
  MeshModel* model_;
  Groups* groups_;
  OuterMemory memory_;
  RoundReach reach_;
  OuterRounds rounds_;
  std::unique_ptr<Stream> codec_stream_{};               // null where rounds travel plain
  std::shared_ptr<Worker> codec_worker_{};               // shared with transfers; likewise
  std::vector<std::unique_ptr<OuterChannel>> channels_;  // of fragments; none in the background
  std::unique_ptr<BackgroundRound> background_{};        // null where differences travel
  int travels_ = 0;                                      // the fragment that was sent last
  bool has_leads_ = false;             // the round under way began ahead of the anchor
  bool anchor_in_use_ = false;         // in place of the weights
  bool has_arrived_ = false;           // differences are the sum over workers, to be used
  double largest_penalty_ = 1.0;       // of the last move
  double clipped_ = 0.0;               // share of elements, in this end's move
  std::vector<double> moved_squares_;  // of that move, by parameter of the model; if measured
  double sent_squares_ = 0.0;          // of what was sent last, over workers; NaN: not known
  double arrived_squares_ = 0.0;       // of this rank's part of its sum, as it arrived

  RoundTravel sent_{};       // the round that was sent last
  bool is_to_come_ = false;  // an end is yet to use it, and notes that
  RoundTravels ended_{};     // of the last end

  // For a period that the run chooses.
  bool goes_unseen_ = false;   // the round may have arrived long before that was seen
  double round_began_ = 0.0;   // when its first step did, but for what was no step
  double exchanged_at_ = 0.0;  // when anchor and weights last were
  double met_at_ = 0.0;        // when all workers last waited for each other
};

}  // namespace slackline
