"""How the agents agree on the next world. Pure: events in, effects out, time as an argument.

The manual, in one paragraph. Every agent runs `decide` for each job it takes part in. It learns
facts (members, world, status, its own workers) as events and keeps them in a `JobState`. Three
agents, those of the three lowest ranks, watch all members; when the world no longer fits the
members, the first of them proposes the next one by a compare-and-set, so that a race has one winner
and a dead proposer is replaced by waiting a few milliseconds. Everybody follows the world record:
stop the old workers, start the new ones, say "arrived". Nobody leads, no lock is held, and each
write is safe to lose, to repeat and to come late.

`decide` is the entry point. In `next_world/`, `plan` knows what the next world looks like, `change`
why one is needed, and `propose` when to ask for it. `conduct/` applies the present world on this
node, and `facts/` are the handlers of events. `invariant` checks the rules after every decision, in
the simulator and live; `journal` records the events of an agent, so that they can be decided again.
"""
