# shellcheck shell=bash
# Sourced by the commands in tools/: numbered steps with times, a log for each step, and a text about a failed step.
#
#   steps_begin setup 5
#   run_step "building" "what to do if it fails" -- ninja -C build/release
#
# run_step prints "[setup 4/5] building ... 12 s", on a terminal with the last line of the log while it runs, and leaves
# the output in build/logs/. It returns the command's status. complain_about_step then tells a person how to continue.

repository=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) # a folder of links to a checkout uses its build
log_folder=$repository/build/logs

steps_begin() {
  steps_name=$1
  steps_total=$2
  steps_done=0
  mkdir -p "$log_folder"
}

# The last line of a log as a terminal shows it after carriage returns, cut to `$2` columns.
last_line() {
  tail -c 2000 "$1" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | tr -d '\000-\037' | cut -c "1-$2"
}

run_step() {
  step_title=$1
  step_remedy=$2
  shift 3
  steps_done=$((steps_done + 1))
  step_log=$log_folder/$steps_name-$steps_done.log
  local label="[$steps_name $steps_done/$steps_total] $step_title ..."
  local start=$SECONDS status=0
  if [[ -t 1 && ${TERM:-dumb} != dumb ]]; then
    local room=$(($(tput cols 2>/dev/null || echo 80) - ${#label} - 10))
    # With its own process group, an interrupt ends all processes of the step, and nothing continues in the background.
    set -m
    "$@" >"$step_log" 2>&1 </dev/null &
    local child=$!
    set +m
    trap 'kill -TERM -- "-$child" 2>/dev/null; echo; exit 130' INT TERM
    while kill -0 "$child" 2>/dev/null; do
      printf '\r\033[K%s %d s %s' "$label" $((SECONDS - start)) "$([[ $room -gt 10 ]] && last_line "$step_log" "$room")"
      sleep 0.5
    done
    wait "$child" || status=$?
    trap - INT TERM
    printf '\r\033[K'
  else
    printf '%s' "$label"
    "$@" >"$step_log" 2>&1 </dev/null || status=$?
    label=
  fi
  step_seconds=$((SECONDS - start))
  printf '%s %d s%s\n' "$label" "$step_seconds" "$([[ $status -eq 0 ]] || echo ", failed (status $status)")"
  return "$status"
}

# Prints the failed step, the end of its log, the path of the log, and the remedy.
complain_about_step() {
  {
    echo
    echo "$steps_name: step $steps_done of $steps_total failed: $step_title. The last lines of its log:"
    echo
    tail -n 20 "$step_log" | sed 's/^/    /'
    echo
    echo "log:        ${step_log#"$repository"/}"
    echo "what to do: $step_remedy"
  } >&2
}
