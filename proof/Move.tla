--------------------------------- MODULE Move ---------------------------------
(* A lock moves from the masters Old to the masters New while its clients run. Redlock.tla has the
   protocol of a client; this is about the markers of masters, and the tool that changes them.
   `python3 proof/tlc.py` checks it in each configuration of proof/Move. proof/move.py proves it for
   any number of masters and clients, and of moves; the names in Omit are those of its rules.

   A marker is a step of the move, and names the kinds of clients that the master serves:

     0 nobody: it was lost    1 A    2 A, A>B    3 A>B    4 A>B, B    5 B

   What the model simplifies, besides what Redlock.tla does:
   - Commands and replies arrive at any later time, or when their round is over, never.
   - A client stands for many: it asks again when its keys are gone. So nothing bounds how many
     attempts, rounds of extending and changes of markers there are.
   - Keys live as long as leases: all clocks have one rate.
   - A look of the tool is a single step. It need not reach a master, now or ever. *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Old, New,               \* the sets of masters: model values
  OfOld, OfBoth, OfNew,   \* the clients of each kind: model values
  Life, Wait, Quarantine, \* in ticks: of leases, of the tool, of a client before it marks a master
  MaxLost,                \* how many markers are lost in all
  Omit                    \* which rules are left out

ASSUME /\ Wait >= Life \/ "wait" \in Omit
       /\ Omit \subseteq {"grant", "extend", "quorum", "wait", "order", "one tool", "mark"}

Masters == Old \cup New
Clients == OfOld \cup OfBoth \cup OfNew
Kind(c) == IF c \in OfOld THEN "A" ELSE IF c \in OfBoth THEN "A>B" ELSE "B"
Sets(kind) == CASE kind = "A" -> {Old} [] kind = "A>B" -> {Old, New} [] kind = "B" -> {New}
Named(marker) == CASE marker = 0 -> {} [] marker = 1 -> {"A"} [] marker = 2 -> {"A", "A>B"}
                   [] marker = 3 -> {"A>B"} [] marker = 4 -> {"A>B", "B"} [] marker = 5 -> {"B"}
Narrowest(kind) == CASE kind = "A" -> 1 [] kind = "A>B" -> 3 [] kind = "B" -> 5
\* A quorum has a majority of each set: of both, it is a joint quorum.
IsQuorum(some, kind) == \A set \in Sets(kind) : 2 * Cardinality(some \cap set) > Cardinality(set)
Nobody == "nobody"
Never == -1
Less(t) == IF t > 0 THEN t - 1 ELSE t

VARIABLES
  master,  \* master[m]: its marker, its key, how long that lives, how long it is in quarantine
  client,  \* client[c]: see Idle
  closed,  \* closed["A"]: ticks until the tool counts A as closed. Never: it has not seen that
  lost,    \* how many markers were lost
  step     \* what happened last, for readers of a trace. View leaves it out of the states
View == <<master, client, closed, lost>>
Symmetry == Permutations(Old \ New) \cup Permutations(New \ Old) \cup Permutations(Old \cap New)

Idle == [lease |-> 0,   \* ticks until the deadline. 0: it does not hold
         round |-> 0,   \* ticks until the deadline that its round would give. 0: it has none
         asked |-> {},  \* the masters that have not executed the command of its round
         votes |-> {}]  \* those that have said yes
Believes(c) == client[c].lease > 0

Init ==
  /\ master = [m \in Masters |-> [marker |-> 1, key |-> Nobody, left |-> 0, distrusted |-> 0]]
  /\ client = [c \in Clients |-> Idle]
  /\ closed = [A |-> Never, B |-> 0] /\ lost = 0 /\ step = <<"Init">>

Tick ==
  /\ master' = [m \in Masters |-> [master[m] EXCEPT !.left = Less(@), !.distrusted = Less(@)]]
  /\ client' = [c \in Clients |-> LET me == client[c] IN
       IF me.round > 1 THEN [me EXCEPT !.lease = Less(@), !.round = Less(@)]
       ELSE [Idle EXCEPT !.lease = Less(me.lease)]]
  /\ closed' = [kind \in {"A", "B"} |-> Less(closed[kind])]
  /\ UNCHANGED lost /\ step' = <<"Tick">>
Expire(m) ==
  /\ master[m].key # Nobody /\ master[m].left = 0 /\ master' = [master EXCEPT ![m].key = Nobody]
  /\ UNCHANGED <<client, closed, lost>> /\ step' = <<"Expire", m>>
(*********************************** Clients ************************************)
Ask(c) ==  \* A round of acquiring, or of extending. Its deadline counts from here (R1).
  /\ client[c].round = 0 /\ (Believes(c) \/ \A m \in Masters : master[m].key # c)
  /\ client' = [client EXCEPT ![c].round = Life, ![c].votes = {},
                              ![c].asked = UNION Sets(Kind(c))]
  /\ UNCHANGED <<master, closed, lost>>
  /\ step' = <<IF Believes(c) THEN "Extend" ELSE "Ask", c>>

Execute(c, m) ==
  LET it == master[m]
      named == Kind(c) \in Named(it.marker)
      grants == it.key = Nobody /\ it.distrusted = 0 /\ (named \/ "grant" \in Omit)
      extends == it.key = c /\ (named \/ "extend" \in Omit)
      yes == grants \/ extends
  IN /\ m \in client[c].asked
     /\ master' = IF yes THEN [master EXCEPT ![m].key = c, ![m].left = Life] ELSE master
     /\ client' = [client EXCEPT ![c].asked = @ \ {m}, ![c].votes = IF yes THEN @ \cup {m} ELSE @]
     /\ UNCHANGED <<closed, lost>>
     /\ step' = <<IF grants THEN "Grant" ELSE IF extends THEN "Keep" ELSE "Refuse", c, m>>

Win(c) ==  \* Or its extension succeeds.
  /\ client[c].round > 0 /\ IsQuorum(client[c].votes, Kind(c))
  /\ client' = [client EXCEPT ![c] = [Idle EXCEPT !.lease = client[c].round]]
  /\ UNCHANGED <<master, closed, lost>> /\ step' = <<IF Believes(c) THEN "Extended" ELSE "Win", c>>
(*********************************** The tool ***********************************)
Change(m, marker, name) ==  \* A compare-and-set: the tool has seen the marker that m has.
  /\ LET added == Named(marker) \ Named(master[m].marker)
         Open(kind, rival) == kind \in added => closed[rival] = 0 \/ "order" \in Omit
     IN /\ Open("A", "B") /\ Open("B", "A")
        /\ closed' = [kind \in {"A", "B"} |->
             IF kind \in added /\ "one tool" \notin Omit THEN Never ELSE closed[kind]]
  /\ master' = [master EXCEPT ![m].marker = marker]
  /\ UNCHANGED <<client, lost>> /\ step' = <<name, m, marker>>
Forward(m) == master[m].marker \in 1..4 /\ Change(m, master[m].marker + 1, "Forward")
Back(m) == master[m].marker \in 2..5 /\ Change(m, master[m].marker - 1, "Back")

See(kind) ==  \* A quorum has markers that do not name the kind. The others may be down.
  LET without == {m \in Masters : master[m].marker > 0 /\ kind \notin Named(master[m].marker)} IN
  /\ closed[kind] = Never
  /\ IF "quorum" \in Omit THEN without # {} ELSE IsQuorum(without, kind)
  /\ closed' = [closed EXCEPT ![kind] = Wait]
  /\ UNCHANGED <<master, client, lost>> /\ step' = <<"See", kind>>
(************************** Masters that lose a marker **************************)
Lose(m) ==
  /\ lost < MaxLost /\ lost' = lost + 1
  /\ master' = [master EXCEPT ![m] =
       [marker |-> 0, key |-> Nobody, left |-> 0, distrusted |-> Quarantine]]
  /\ UNCHANGED <<client, closed>> /\ step' = <<"Lose", m>>

Mark(c, m) ==  \* The client may be cut off from all but a quorum of its masters.
  LET own == {n \in Masters : Kind(c) \in Named(master[n].marker) \/
                              ("mark" \in Omit /\ master[n].marker = 0)}
  IN /\ master[m].marker = 0 /\ master[m].distrusted = 0 /\ IsQuorum(own, Kind(c))
     /\ master' = [master EXCEPT ![m].marker = Narrowest(Kind(c))]
     /\ UNCHANGED <<client, closed, lost>> /\ step' = <<"Mark", c, m>>
(*************************** Specification, properties ***************************)
Next == \/ \E c \in Clients : \/ Ask(c) \/ Win(c)
                              \/ \E m \in Masters : Execute(c, m) \/ Mark(c, m)
        \/ \E m \in Masters : Forward(m) \/ Back(m) \/ Lose(m) \/ Expire(m)
        \/ \E kind \in {"A", "B"} : See(kind)
        \/ Tick
Spec == Init /\ [][Next]_<<View, step>>

TypeOK ==
  /\ master \in [Masters -> [marker : 0..5, key : {Nobody} \cup Clients, left : 0..Life,
                             distrusted : 0..Quarantine]]
  /\ \A c \in Clients : /\ {client[c].lease, client[c].round} \subseteq 0..Life
                        /\ client[c].asked \cup client[c].votes \subseteq Masters
  /\ closed \in [{"A", "B"} -> Never..Wait]
MutualExclusion == \A c, d \in Clients : Believes(c) /\ Believes(d) => c = d

\* A constraint: markers are lost, and then clients begin, when the tool has seen that A is closed.
\* The move does not end.
Later == /\ lost > 0 => closed["A"] # Never
         /\ \A m \in Masters : master[m].marker < 5
         /\ (\E c \in Clients : client[c] # Idle) => closed["A"] = 0 /\ lost = MaxLost
\* Not a property: the run that violates it shows what the model can do.
NeverMoved == \A c \in OfNew : ~Believes(c)
==============================================================================
