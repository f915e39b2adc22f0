# The keeper of one master: starts it, signals it, and cleans up after it. Started by process.rs as
#     sh -c THIS redquorum-keeper DIRECTORY SERVER ARGUMENT...
# Makes the directory and reports it; process.rs then puts files into it, and sends `launch`. Reads
# one word a line from its standard input, and answers each with one line that begins with @; other
# lines are complaints of the shell. Its input ends when the process at the other end is gone, in
# whatever way: then the keeper ends the server and removes the directory.

exec 2>&1
# The keeper ends last: neither a terminal's signals nor a closed pipe of answers ends it.
trap '' HUP INT QUIT TERM PIPE
umask 077
dir=$1
shift
pid=

launch() {
  # The server gets its signals back, and none of the keeper's pipes: were it to hold them, the
  # reader of the answers would wait for it.
  {
    trap - HUP INT QUIT TERM PIPE
    # Not from the start: the keeper's own programs need no other clock.
    if [ -n "$REDQUORUM_PRELOAD" ]; then
      LD_PRELOAD=$REDQUORUM_PRELOAD
      export LD_PRELOAD
    fi
    exec "$@"
  } </dev/null >>"$dir/log" 2>&1 &
  pid=$!
  echo "@pid $pid"
}

# `kill -0` alone is true for a dead child that the shell has not waited for yet, and shells differ
# in when they do; `jobs` makes them. A pid is forgotten as soon as it is known to be dead: it may
# be another process's by now.
running() {
  [ -n "$pid" ] || return 1
  jobs >/dev/null
  kill -0 "$pid" 2>/dev/null || pid=
  [ -n "$pid" ]
}

signal() {
  if running && kill -"$1" "$pid"; then echo "@done"; else echo "@down"; fi
}

# SIGKILL also ends a stopped process. After `wait` its port is free.
end() {
  if running; then
    kill -9 "$pid"
    wait "$pid"
  fi 2>/dev/null
  pid=
}

# Making the directory claims the port that it is named after, see ports.rs.
# A directory that is gone at the second look was another keeper's, which has ended meanwhile.
if ! mkdir "$dir"; then
  if [ -e "$dir" ] || ! mkdir "$dir"; then
    if [ -e "$dir" ]; then echo "@taken"; fi
    exit 1
  fi
fi
echo "@ready"

while read -r word; do
  case $word in
    launch) end; launch "$@" ;;
    kill) end; echo "@done" ;;
    # A paused one takes the signal as soon as it goes on, before anything that it was sent.
    stop) signal TERM; if running; then kill -CONT "$pid"; fi ;;
    pause) signal STOP ;;
    resume) signal CONT ;;
    look) if running; then echo "@done"; else echo "@down"; fi ;;
  esac
done

end
# A child that the server had forked to write a file may be a moment behind its parent.
rm -rf "$dir" || { sleep 1; rm -rf "$dir"; }
