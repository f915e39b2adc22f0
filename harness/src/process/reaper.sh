# The reaper of a harness's client processes. Started by process.rs as
#     sh -c THIS redquorum-reaper
# Reads `add GROUP` and `drop GROUP`, a line each, and answers each with a line. The end of its input
# means that the harness is gone, in whatever way: then it kills every group that was added and not
# dropped, running, stopped or ignoring other signals.

# It ends last: neither a terminal's signals nor a closed pipe of answers ends it.
trap '' HUP INT QUIT TERM PIPE
groups=' '

while read -r word group; do
  case $word in
    add) groups="$groups$group " ;;
    drop) case $groups in
      *" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;;
    esac ;;
  esac
  echo "@done"
done

for group in $groups; do
  kill -9 "-$group"
done
