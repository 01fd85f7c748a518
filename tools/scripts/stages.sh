# shellcheck shell=bash
# Stages of a long script, each timed, with one table at the end: sourced by tools/test,
# tools/check, tools/quickstart and .ci/run, which have set -euo pipefail.

# Each stage's output is kept here.
logs=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")/build/logs/$(basename "$0")
stage_table=()
stage_running=""

# What several presets compile in the same way is compiled once, where ccache is installed, which an
# earlier stage may have done.
use_ccache() {
  if command -v ccache > /dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-${logs%/build/*}} CCACHE_NOHASHDIR=1
  fi
}

# stage NAME COMMAND [ARGUMENT...]: a failing command ends the script. One that ends with 77 cannot
# run here and has said why.
stage() {
  local name=$1 start=$SECONDS status
  shift
  mkdir -p "$logs"
  use_ccache
  stage_running=$name
  printf '\n==> %s%s\n' "$name" "$([[ $(type -t "$1") == function ]] || printf ': %s' "$*")"
  # Not as a condition, in which a function would go on behind a command that fails.
  set +e
  (
    set -e
    "$@"
  ) 2>&1 | tee "$logs/$name.log"
  status=${PIPESTATUS[0]}
  set -e
  if [[ $status -eq 77 ]]; then
    stage_running=""
    stage_skipped "$name" "$(tail -n 1 "$logs/$name.log")"
    return
  fi
  [[ $status -eq 0 ]] || exit "$status"
  stage_running=""
  stage_table+=("$(printf '%-14s %5d s  %s' "$name" $((SECONDS - start)) "$(ctest_line "$name")")")
}

# stage_skipped NAME REASON: says so now and again in the table.
stage_skipped() {
  printf '\n==> %s: SKIPPED, %s\n' "$1" "$2"
  stage_table+=("$(printf '%-14s SKIPPED  %s' "$1" "$2")")
}

# The last summary of ctest in a stage's output, if it ran ctest.
ctest_line() {
  grep -ho '[0-9]*% tests passed.*' "$logs/$1.log" | tail -n 1 || true
}

print_stages() {
  local status=$? verdict=passed
  printf '\n'
  [[ ${#stage_table[@]} -eq 0 ]] || printf '%s\n' "${stage_table[@]}"
  # An interrupt can leave a status of 0 behind.
  [[ $status -eq 0 && -z $stage_running ]] || verdict=FAILED
  if [[ -n $stage_running ]]; then
    printf '%-14s FAILED   %s\n' "$stage_running" "$(ctest_line "$stage_running")"
    printf 'its output: %s\n' "$logs/$stage_running.log"
  fi
  printf '%s: %s after %d s\n' "$0" "$verdict" "$SECONDS"
}
trap print_stages EXIT

# stage_preset PRESET [ctest argument...]: configures and builds a preset and runs its tests.
stage_preset() {
  local preset=$1
  shift
  stage "configure-$preset" cmake --preset "$preset"
  stage "build-$preset" cmake --build --preset "$preset"
  stage "test-$preset" ctest --preset "$preset" --parallel "$(nproc)" "$@"
}

# stage_fresh_machine [configure|quickstart|test]...: of a commit, so of what is committed.
stage_fresh_machine() {
  [[ $EUID -ne 0 ]] || stage install-fresh tools/install_packages fresh_machine
  stage fresh-machine tools/fresh_machine "$@"
}

# Optional: without them attention of bf16 uses the own kernels.
bring_cuda_headers() {
  tools/install_packages cuda build/cudnn-frontend ||
    echo "carrying on without cudnn-frontend (tools/install_packages cuda build/cudnn-frontend)"
}

# Kernels that were compiled and not found within bounds are compiled anew the next time, for only
# then does the compiler say what they take.
check_kernels() {
  python3 tools/scripts/kernel_resources.py "$logs/build-cuda.log"
  rm build/cuda/unchecked
}

forget_unchecked_kernels() {
  [[ ! -e build/cuda/unchecked ]] || find build/cuda -name '*.cu.o' -delete
  touch build/cuda/unchecked
}

# stage_cuda [ctest argument...]: the CUDA preset is built wherever there is a compiler for it, and
# its tests run that need no GPU.
stage_cuda() {
  if ! command -v nvcc > /dev/null && [[ ! -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]]; then
    stage_skipped cuda "no nvcc in PATH nor in ${CUDA_HOME:-/usr/local/cuda}/bin"
    return
  fi
  stage headers-cuda bring_cuda_headers
  stage configure-cuda cmake --preset cuda
  forget_unchecked_kernels
  stage build-cuda cmake --build --preset cuda
  stage kernel-resources check_kernels
  stage test-cuda ctest --preset cuda --parallel "$(nproc)" "$@"
}
