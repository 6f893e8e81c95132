"""The ledger: public reports of crashes, memory errors and silently wrong answers, replayed through raggrad."""
