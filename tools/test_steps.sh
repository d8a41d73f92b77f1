# shellcheck shell=bash
# Sourced by tools/test and tools/nightly: steps that are tests, and how they are counted.
#
#   tests_begin test 12
#   ctest_run release "ctest" -LE long
#   pytest_run frontends/python/tests
#   finish
#
# Reports are left in build/test-results.

# shellcheck source=tools/steps.sh
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

# What a test or a runner may read of the caller's environment, for tools/ci/verdict.py.
variables=$(env -0 | grep -zE '^((PENSTOCK_|GTEST_|TEST_|OMP_)[^=]*|[^=]*SAN_OPTIONS)=' | LC_ALL=C sort -z | tr '\0' '\n')
# Tests do not use the caller's configuration and plugins.
unset "${!PENSTOCK_@}"

python=$repository/.venv/bin/python
results=build/test-results
# Tests with 2^24 elements take up to 2 GB each. A test that needs more than one core tells ctest so.
at_a_time=$(($(nproc) < 4 ? $(nproc) : 4))
counts=()      # arguments of count_tests.py
table=()       # "seconds, seconds of a processor, status, title"
second_try=yes # whether a failed test may run again (tools/ci/second_try.py)
quick_filter=  # GTEST_FILTER of the release's tests
processor=0    # see count_processor
processor_behind=0
closing=()     # lines in front of the line with the counts
on_green=()    # a command for a run without a failure and without a second try; it gets the arguments of count_tests.py

# processor_of FILE: the seconds of a processor that the ended commands of a shell have used, with all processes that they
# waited for. FILE has the output of the shell's own `times`.
processor_of() {
  awk -F '[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4) }' "$1"
}

# count_processor: sets `processor` to what this shell's commands have used.
count_processor() {
  LC_ALL=C times >"$results/times" # not in $(...), because a subshell has used nothing
  processor=$(processor_of "$results/times")
}

# note TITLE STATUS SECONDS PROCESSOR
note() {
  table+=("$(printf '%6d s %6d s of a processor  %-6s  %s' "$3" "$4" "$([[ $2 -eq 0 ]] && echo ok || echo FAILED)" "$1")")
}

# finish: prints the ten slowest steps and tests, the failures, what became of them in a second try, and the line with
# the counts.
finish() {
  count_processor
  printf '\nthe ten slowest steps (this run has used %d s of a processor):\n' "$((processor + processor_behind))"
  printf '%s\n' "${table[@]}" | sort -rn | head -n 10
  printf '\nthe ten slowest tests:\n'
  python3 tools/ci/count_tests.py --slowest 10 "${counts[@]}"
  local report
  # Not the environment's Python, because the virtual environment may be broken.
  if ! report=$(python3 tools/ci/count_tests.py "${counts[@]}"); then
    report="0 1 0"$'\n'"the reports in $results could not be read"
  fi
  local passed failed skipped tried_twice=no
  read -r passed failed skipped <<<"${report%%$'\n'*}"
  if [[ $failed -gt 0 ]]; then
    printf '\nfailed:\n'
    tail -n +2 <<<"$report" | sed 's/^/  /'
    echo
    if [[ $second_try == yes ]] &&
      "$python" tools/ci/second_try.py --python "$python" --gtest-filter="$quick_filter" "${counts[@]}"; then
      passed=$((passed + failed)) failed=0 tried_twice=yes
    fi
  fi
  [[ ${#closing[@]} -eq 0 ]] || printf '%s\n' "${closing[@]}"
  if [[ $failed -eq 0 && $tried_twice == no && ${#on_green[@]} -gt 0 ]]; then "${on_green[@]}" "${counts[@]}"; fi
  echo "$passed passed, $failed failed$([[ $skipped -eq 0 ]] || echo ", $skipped skipped")"
  [[ $failed -eq 0 ]] || exit 1
  exit 0
}

# timed_step TITLE REMEDY -- COMMAND...: run_step, and sets `processor` to what this step has used.
timed_step() {
  local status=0 before
  count_processor
  before=$processor
  run_step "$@" || status=$?
  count_processor
  processor=$((processor - before))
  return "$status"
}

# step TITLE REMEDY -- COMMAND...: runs the command, notes its time, and explains a failure. The status is the command's
# status.
step() {
  local title=$1 status=0
  timed_step "$@" || status=$?
  if [[ -s $results/behind ]]; then # the times of a command in the background
    read -r step_seconds processor <"$results/behind"
    processor_behind=$((processor_behind + processor))
  fi
  rm -f "$results/behind"
  note "$title" "$status" "$step_seconds" "$processor"
  [[ $status -eq 0 ]] || complain_about_step
  return "$status"
}

# check TITLE REMEDY -- COMMAND...: a step that counts as one test.
check() {
  local status=0
  step "$@" || status=$?
  counts+=(--step "$1" "$status")
}

# warn TITLE REMEDY -- COMMAND...: a step whose failure is only named in the closing lines.
warn() {
  timed_step "$@" && { note "$1" 0 "$step_seconds" "$processor" && return; }
  note "$1" 1 "$step_seconds" "$processor"
  closing+=("warning: $1: $2 (${step_log#"$repository"/})")
}

# build TITLE REMEDY -- COMMAND...: a step that counts as a test only if it fails.
build() {
  step "$@" && return 0
  counts+=(--step "$1" 1)
  return 1
}

# ctest_run PRESET TITLE CTEST_ARGUMENTS...
ctest_run() {
  local preset=$1 title=$2 status=0
  shift 2
  local folder=$repository/$results/$preset
  local report=$folder.${title//[^a-z]/-}.junit.xml
  step "$title" "run one test again: cd build/$preset && ctest -R NAME --output-on-failure" -- \
    env GTEST_OUTPUT="xml:$folder/" "${runner[@]}" \
    ctest --test-dir "build/$preset" --parallel "$at_a_time" --output-on-failure --no-tests=error \
    --output-junit "$report" --output-log "${report%.xml}.log" "$@" || status=$?
  if [[ -f $report ]]; then
    counts+=(--ctest "$report" "$folder" "$status")
  else
    counts+=(--step "$title" 1)
  fi
}

# The name of a suite in $results.
name_of() {
  echo "pytest-${1//\//-}${2:+-$2}"
}

# How pytest writes a report. In this form it names the file of each test.
junit_of() {
  echo -o junit_family=xunit1 --junitxml "$results/$(name_of "$@").xml"
}

# pytest_run FOLDER [VARIANT]
pytest_run() {
  local status=0
  # shellcheck disable=SC2046
  step "pytest $1${2:+, $2}" "run it again: .venv/bin/python -m pytest $1" -- \
    "$python" -m pytest -q -rs $(junit_of "$@") "$1" || status=$?
  count_pytest "$results/$(name_of "$@").xml" "pytest $1${2:+, $2}" "$status"
}

# count_pytest REPORT TITLE STATUS
count_pytest() {
  if [[ -f $1 ]]; then
    counts+=(--pytest "$1" "$3")
  else
    counts+=(--step "$2" 1)
  fi
}

# Builds everything. The simulated GPU stays configured afterwards.
build_all() {
  cmake --preset release -DPENSTOCK_SIMULATED_DEVICE=ON && ninja -C build/release -j "$(nproc)"
}

# Tests that run under sanitizers. asan: tests of all code that reads received bytes, without whole steps of every method,
# which take 400 s, and without the command; tools/nightly has these. tsan: tests of all code with threads.
asan_tests='^(core|kernels|wire|collectives|planning|rig|loopback|oktopk|decode)_'
not_under_asan='^core_set_methods_test$'
tsan_tests='^(core_(base|comm|control|library|operations|plugin|set|trace)|collectives|loopback_collective|oktopk_collective)_test$'

# The names of the tests that are one process of a program of the core, the SDK or a plugin, and match the first pattern
# but not the second.
own_tests() {
  ctest --test-dir "build/$1" -N -LE 'mpi|build' | sed -nE 's/^ *Test +#[0-9]+: ([a-z0-9_]+_test)(_shard_[0-9]+)?$/\1/p' |
    sort -u | grep -v mpi | grep -E "$2" | grep -vE "${3:-^$}"
}

# build_for PRESET PATTERN [NOT]: builds the tests of that preset whose names match. The target of a test also builds the
# plugins that it loads.
configure_more=() # arguments of cmake beside the preset
build_for() {
  local preset=$1 tests
  # shellcheck disable=SC2086
  cmake --preset "$preset" "${configure_more[@]}" && tests=$(own_tests "$@") &&
    nice -n 10 ninja -C "build/$preset" -j "$(nproc)" $tests
}

# run_for PRESET TITLE PATTERN [NOT]: runs the tests that build_for has built.
run_for() {
  local preset=$1 title=$2
  shift 2
  ctest_run "$preset" "$title" -R "^($(own_tests "$preset" "$@" | paste -sd '|'))(_shard_[0-9]+)?\$"
}

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
# ThreadSanitizer of gcc 12 cannot map its shadow if addresses are spread widely, so addresses are fixed.
runner=()
fixed=(setarch "$(uname -m)" --addr-no-randomize)
"${fixed[@]}" true 2>/dev/null || fixed=()

# tests_begin NAME TOTAL: before the first step.
tests_begin() {
  steps_begin "$@"
  rm -rf "$results"
  mkdir -p "$results"
}
