"""What happens to the gradient of a table: it stays coalesced, is summed over ranks, or updates the table."""
