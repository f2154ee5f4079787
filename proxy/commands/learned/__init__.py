"""Commands that the table lacks, of modules and of newer servers: they are learned from the servers."""
