------------------------------- MODULE Redlock -------------------------------
(* The protocol of docs/safety.md: clients lock one resource on a quorum of independent masters.
   R1 to R8 are its rules, A2 to A4 its assumptions. `python3 proof/tlc.py` checks it in each
   configuration of proof/Redlock. Most are named after the file in scenarios/ with the same story.

   What the model simplifies:
   - Time goes in ticks, and all between two of them in any order. Leases and keys count down. A
     lease ends TTL - Drift ticks after its t0. A key lives for TTL - Skew ticks at least, and then
     expires at any time, or never. Skew is how fast a master is at most, or how slow a client.
   - A reply arrives when its command is executed, or never ("lost-replies"). The client acts on it
     at any later time, or never. That covers slow replies, pauses, and clients that die.
   - A command may stay in its connection for ever. Connections do not break: a command that is lost
     does no more harm than one that is executed and cleaned up.
   - A grant takes a fencing token that is larger than all before. How independent masters agree on
     such tokens has a model check of its own: see docs/evidence.md.
   - R6 takes each missing key for a lost one. The library allows for keys that expired in time.
   - There are no clock guards, lock delays, shared leases, queues or re-entry, and no liveness. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Masters, Clients,      \* model values
  TTL, Drift, Skew,      \* in ticks. A4 says: Skew <= Drift
  Attempts, Extensions,  \* how many attempts, and rounds of extending, there are in all
  Faults, MaxFaults,     \* which faults there are, and how many of "step" and "forget" in all
  HeldBy,                \* these two wait until so many masters have the key of a holder
  Quarantine,            \* the restart guard: how long a master that forgot grants nothing
  Resource,              \* "none", "plain", or "fenced": it checks fencing tokens
  Gaps,                  \* which gaps R6 must find: those "at rounds", or "at any time"
  Mutants                \* which rules are broken: names of `just mutants`, and "counts-repairs"

ASSUME /\ Faults \subseteq {"step", "forget", "lost-replies", "pause", "write-delayed"}
       /\ Resource \in {"none", "plain", "fenced"} /\ Gaps \in {"at rounds", "at any time"}

Majority == Cardinality(Masters) \div 2 + 1
Quorum == IF "small-quorum" \in Mutants THEN Majority - 1 ELSE Majority
KeyLife == TTL - Skew
LeaseLife == TTL - (IF "drift-ignored" \in Mutants THEN 0 ELSE Drift)
NoKey == <<>>  \* A key is <<c, n>>: the token of attempt n of client c (R4).
Less(t) == IF t = 0 THEN 0 ELSE t - 1

VARIABLES
  master,    \* master[m]: its key, how long that lives, how long the guard distrusts m
  wire,      \* wire[c][m]: the commands on the connection from c to m, in order
  client,    \* client[c]: see Idle
  resource,  \* the protected resource: its tokens, and who has read it
  used,      \* how many attempts, rounds and faults there were
  unseen,    \* unseen[c]: the gaps of c's lease, for the property of R6: see Then
  step       \* what happened last, for readers of a trace. View leaves it out of the states
View == <<master, wire, client, resource, used, unseen>>
Symmetry == Permutations(Masters) \cup Permutations(Clients)

Idle(n) == [
  phase |-> "idle",   \* "asks"; "holds", the believed hold; "late": the deadline is over, unnoticed
  attempt |-> n,      \* how many attempts there were
  lease |-> 0,        \* ticks until the deadline
  members |-> {},     \* the masters that granted. Only they vote on extensions
  round |-> 0,        \* of extending; whether it is undecided
  open |-> FALSE, next |-> 0,  \* ticks until the deadline that it would give
  votes |-> {},       \* who confirmed the round
  spans |-> {},       \* for each round: the members that held the key before it, the silent ones
  bridged |-> FALSE]  \* whether a round succeeded after replies had shown a gap
Believes(c) == client[c].phase = "holds"

Init ==
  /\ master = [m \in Masters |-> [key |-> NoKey, left |-> 0, distrusted |-> 0]]
  /\ wire = [c \in Clients |-> [m \in Masters |-> <<>>]]
  /\ client = [c \in Clients |-> Idle(0)]
  /\ resource = [grants |-> 0, fence |-> [c \in Clients |-> 0], presented |-> 0,
                 read |-> [c \in Clients |-> "nothing"], lost |-> FALSE]
  /\ used = [attempts |-> 0, rounds |-> 0, faults |-> 0] /\ step = <<"Init">>
  /\ unseen = [c \in Clients |-> {}]

\* The end of each action. A gap: a quorum lacks the key of a holder, so that a rival may get in. It
\* is remembered as the members that lack the key and have not replied since: {} if all have.
Then(label, replied) ==
  LET Lack(c) == {m \in Masters : master'[m].key # <<c, client'[c].attempt>>}
      Looks(c) == Gaps = "at any time" \/ client'[c].round > client[c].round
      New(c) == IF Cardinality(Lack(c)) < Majority \/ ~Looks(c) THEN {}
                ELSE {Lack(c) \cap client'[c].members}
      Old(c) == {{m \in gap : <<c, m>> \notin replied} : gap \in unseen[c]}
  IN /\ step' = label
     /\ unseen' = IF Extensions = 0 THEN unseen ELSE
          [c \in Clients |-> IF client'[c].phase = "holds" THEN Old(c) \cup New(c) ELSE {}]
(******************************* Time and masters *******************************)
Tick ==  \* A believed hold ends at its deadline, whatever its client does (R7).
  /\ master' = [m \in Masters |-> [master[m] EXCEPT !.left = Less(@), !.distrusted = Less(@)]]
  /\ client' = [c \in Clients |->
       IF Believes(c) /\ client[c].lease <= 1 THEN [Idle(client[c].attempt) EXCEPT !.phase = "late"]
       ELSE [client[c] EXCEPT !.lease = Less(@), !.next = Less(@)]]
  /\ UNCHANGED <<wire, resource, used>> /\ Then(<<"Tick">>, {})
Drop(m) == master' = [master EXCEPT ![m].key = NoKey, ![m].left = 0]
Put(c, m, n) == master' = [master EXCEPT ![m].key = <<c, n>>, ![m].left = KeyLife]
Expire(m) ==
  /\ master[m].key # NoKey /\ master[m].left = 0 /\ Drop(m)
  /\ UNCHANGED <<wire, client, resource, used>> /\ Then(<<"Expire", m>>, {})

Fault(name, m) ==
  /\ used.faults < MaxFaults /\ used' = [used EXCEPT !.faults = @ + 1]
  /\ HeldBy = 0 \/ \E c \in Clients : Believes(c) /\
       Cardinality({n \in Masters : master[n].key = <<c, client[c].attempt>>}) >= HeldBy
  /\ UNCHANGED <<wire, client, resource>> /\ Then(<<name, m>>, {})

Step(m) ==  \* Its clock jumps past the TTL (against A3).
  /\ "step" \in Faults /\ master[m].left > 0
  /\ master' = [master EXCEPT ![m].left = 0] /\ Fault("Step", m)
Forget(m) ==  \* It restarts without its data (against A2).
  /\ "forget" \in Faults /\ master[m].key # NoKey
  /\ master' = [master EXCEPT ![m] = [key |-> NoKey, left |-> 0, distrusted |-> Quarantine]]
  /\ Fault("Forget", m)
(******************* Commands: executed at any time, or never *******************)
Execute(c, m, op) == /\ wire[c][m] # <<>> /\ Head(wire[c][m]).op = op
                     /\ wire' = [wire EXCEPT ![c][m] = Tail(@)] /\ UNCHANGED <<resource, used>>
Heard == IF "lost-replies" \in Faults THEN BOOLEAN ELSE {TRUE}
Reply(c, m, heard, name, what) ==
  Then(<<name, c, m, what, IF heard THEN "" ELSE "reply lost">>, IF heard THEN {<<c, m>>} ELSE {})

Set(c, m) ==  \* SET NX PX. Until the first round, a grant that is late makes a member, too.
  LET n == Head(wire[c][m]).n
      granted == master[m].key = NoKey /\ master[m].distrusted = 0
      counts == granted /\ client[c].attempt = n /\ client[c].round = 0 /\
        (client[c].phase = "asks" \/ (Believes(c) /\ Extensions > 0))
  IN /\ Execute(c, m, "set") /\ IF granted THEN Put(c, m, n) ELSE UNCHANGED master
     /\ \E heard \in Heard :
          /\ client' = IF ~(heard /\ counts) THEN client
                       ELSE [client EXCEPT ![c].members = @ \cup {m}]
          /\ Reply(c, m, heard, "Set", IF granted THEN "granted" ELSE "refused")

Keep(c, m) ==  \* Prolongs the own key. As a repair, it also creates the key again.
  LET it == Head(wire[c][m])
      me == client[c]
      kept == master[m].key = <<c, it.n>>
      created == master[m].key = NoKey /\ it.repair
      votes == me.open /\ ((kept /\ ~it.repair) \/ "counts-repairs" \in Mutants)
      replied == [me EXCEPT !.spans = {[held |-> s.held, silent |-> s.silent \ {m}] : s \in @}]
      denied == [me EXCEPT !.members = @ \ {m}, !.spans =
        {[held |-> s.held \ (s.silent \cap {m}), silent |-> s.silent \ {m}] : s \in @}]
  IN /\ Execute(c, m, "keep") /\ IF kept \/ created THEN Put(c, m, it.n) ELSE UNCHANGED master
     /\ \E heard \in Heard :
          /\ client' = [client EXCEPT ![c] =
               IF ~heard \/ ~Believes(c) \/ me.attempt # it.n THEN me
               ELSE IF ~(kept \/ created) THEN denied  \* of any round: the key was missing
               ELSE IF me.round # it.round THEN me
               ELSE [(IF m \in me.members THEN replied ELSE me) EXCEPT
                 !.members = @ \cup {m}, !.votes = IF votes THEN @ \cup {m} ELSE @]]
          /\ Reply(c, m, heard, "Keep",
                   IF kept THEN "kept" ELSE IF created THEN "created" ELSE "missing")

Delete(c, m) ==  \* Compare-and-delete (R8).
  LET hits == master[m].key = <<c, Head(wire[c][m]).n>> \/ "plain-del" \in Mutants IN
  /\ Execute(c, m, "delete") /\ IF hits THEN Drop(m) ELSE UNCHANGED master
  /\ UNCHANGED client /\ Then(<<"Delete", c, m>>, {})
(******************************* What clients do ********************************)
Send(c, command) == wire' = [wire EXCEPT ![c] = [m \in Masters |-> Append(@[m], command[m])]]
Start(c) ==  \* The client reads its clock, t0, and sends (R1).
  LET n == client[c].attempt + 1 IN
  /\ client[c].phase = "idle" /\ used.attempts < Attempts
  /\ used' = [used EXCEPT !.attempts = @ + 1]
  /\ client' = [client EXCEPT ![c] = [Idle(n) EXCEPT !.phase = "asks", !.lease = LeaseLife]]
  /\ Send(c, [m \in Masters |-> [op |-> "set", n |-> n]])
  /\ UNCHANGED <<master, resource>> /\ Then(<<"Start", c>>, {})

Win(c) ==  \* A quorum granted, and the deadline is ahead (R1, R3).
  LET lease == IF "t0-after-first-reply" \in Mutants THEN LeaseLife ELSE client[c].lease IN
  /\ client[c].phase = "asks" /\ Cardinality(client[c].members) >= Quorum
  /\ lease > 0 \/ "no-deadline-check" \in Mutants
  /\ client' = [client EXCEPT ![c].phase = "holds", ![c].lease = lease]
  /\ resource' = IF Resource = "none" THEN resource ELSE [resource EXCEPT
       !.grants = @ + 1, !.fence[c] = resource.grants + 1, !.read[c] = "nothing"]
  /\ UNCHANGED <<master, wire, used>> /\ Then(<<"Win", c>>, {})

End(c, phase, name) ==  \* A clean-up goes behind all commands that may create the key (R5).
  LET n == client[c].attempt
      delete == <<[op |-> "delete", n |-> n]>>
  IN /\ client[c].phase = phase /\ client' = [client EXCEPT ![c] = Idle(n)]
     /\ wire' = [wire EXCEPT ![c] = [m \in Masters |->
          IF "cleans-up-first" \in Mutants THEN delete \o @[m] ELSE @[m] \o delete]]
     /\ UNCHANGED <<master, resource, used>> /\ Then(<<name, c>>, {})
GiveUp(c) == End(c, "asks", "GiveUp")
Release(c) == End(c, "holds", "Release")
NoticeLoss(c) == End(c, "late", "NoticeLoss")
Gap(spans) == \E s \in spans : Cardinality(Masters \ s.held) >= Majority
Extend(c) ==  \* A round begins. Members vote. Only the other masters are asked for a repair (R6).
  LET me == client[c] IN
  /\ Believes(c) /\ ~Gap(me.spans) /\ used.rounds < Extensions
  /\ used' = [used EXCEPT !.rounds = @ + 1]
  /\ client' = [client EXCEPT ![c].round = @ + 1, ![c].open = TRUE, ![c].next = LeaseLife,
       ![c].votes = IF "mixes-rounds" \in Mutants THEN @ ELSE {},
       ![c].spans = @ \cup {[held |-> me.members, silent |-> me.members]}]
  /\ Send(c, [m \in Masters |-> [op |-> "keep", n |-> me.attempt, round |-> me.round + 1,
                                 repair |-> m \notin me.members \/ "counts-repairs" \in Mutants]])
  /\ UNCHANGED <<master, resource>> /\ Then(<<"Extend", c>>, {})

Extended(c) ==  \* A quorum voted, both deadlines are ahead, and no replies have shown a gap (R6).
  LET me == client[c]
      lease == IF "extends-from-reply" \in Mutants THEN LeaseLife ELSE me.next
  IN /\ Believes(c) /\ me.open /\ lease > 0 /\ ~Gap(me.spans)
     /\ Cardinality(me.votes) >= IF "extend-counts-minority" \in Mutants THEN 1 ELSE Quorum
     /\ client' = [client EXCEPT ![c].lease = lease, ![c].open = FALSE, ![c].next = 0,
                                 ![c].votes = {}, ![c].bridged = {} \in unseen[c]]
     /\ UNCHANGED <<master, wire, resource, used>> /\ Then(<<"Extended", c>>, {})
(************************* The resource: docs/fencing.md *************************)
MayAct(c) == Believes(c) \/ ("pause" \in Faults /\ client[c].phase = "late")
Read(c) ==  \* Presents the token, and then reads.
  /\ Resource # "none" /\ MayAct(c) /\ resource.read[c] = "nothing"
  /\ Resource = "plain" \/ resource.fence[c] >= resource.presented
  /\ resource' = [resource EXCEPT !.read[c] = "latest",
       !.presented = IF Resource = "plain" THEN 0 ELSE resource.fence[c]]
  /\ UNCHANGED <<master, wire, client, used>> /\ Then(<<"Read", c>>, {})

Write(c) ==  \* Writes what it made of its read, and so undoes all updates since that read.
  LET accepted == Resource = "plain" \/ resource.fence[c] = resource.presented
      what == IF accepted THEN "accepted" ELSE "refused"
      Now(d) == IF d = c THEN "nothing" ELSE
        IF accepted /\ resource.read[d] = "latest" THEN "outdated" ELSE resource.read[d]
  IN /\ resource.read[c] # "nothing" /\ (MayAct(c) \/ "write-delayed" \in Faults)
     /\ resource' = [resource EXCEPT !.read = [d \in Clients |-> Now(d)],
          !.lost = @ \/ (accepted /\ resource.read[c] = "outdated")]
     /\ UNCHANGED <<master, wire, client, used>> /\ Then(<<"Write", c, what>>, {})
(*************************** Specification, properties ***************************)
Next == \/ \E c \in Clients : \/ Start(c) \/ Win(c) \/ GiveUp(c) \/ Release(c) \/ NoticeLoss(c)
                              \/ Extend(c) \/ Extended(c) \/ Read(c) \/ Write(c)
                              \/ \E m \in Masters : Set(c, m) \/ Keep(c, m) \/ Delete(c, m)
        \/ \E m \in Masters : Step(m) \/ Forget(m) \/ Expire(m)
        \/ Tick
Spec == Init /\ [][Next]_<<View, step>>

TypeOK ==
  /\ master \in [Masters -> [key : {NoKey} \cup (Clients \X (1..Attempts)), left : 0..KeyLife,
                             distrusted : 0..Quarantine]]
  /\ \A c \in Clients : /\ client[c].phase \in {"idle", "asks", "holds", "late"}
                        /\ {client[c].lease, client[c].next} \subseteq 0..LeaseLife
                        /\ client[c].votes \cup client[c].members \subseteq Masters
\* The promise, and why it is kept: each two quorums share a master.
MutualExclusion == \A c, d \in Clients : Believes(c) /\ Believes(d) => c = d
HolderHasQuorum == \A c \in Clients : Believes(c) =>
  Cardinality({m \in Masters : master[m].key = <<c, client[c].attempt>>}) >= Majority
\* A key belongs to an attempt or a lease, or its clean-up is on the way (R5).
NoKeyLeft == \A c \in Clients, m \in Masters : \A n \in 1..Attempts : master[m].key = <<c, n>> =>
  \/ client[c].attempt = n /\ client[c].phase # "idle"
  \/ \E i \in DOMAIN wire[c][m] : wire[c][m][i] = [op |-> "delete", n |-> n]
ResourceSafe == ~resource.lost  \* No update is lost.
NoExtensionOverGap == \A c \in Clients : ~client[c].bridged  \* The property of R6.

\* Not properties: the runs that violate them show what the model can do.
NeverInTurn == \A c, d \in Clients : client[c].phase = "late" => ~Believes(d)
NeverExtended == \A c \in Clients : Believes(c) => client[c].round = 0 \/ client[c].open
\* Constraints: the last attempt begins while another one holds, or not before it has held.
Rival == used.attempts = Attempts => \E c \in Clients : Believes(c)
Successor == Rival \/ \E c \in Clients : client[c].phase = "late"
==============================================================================
