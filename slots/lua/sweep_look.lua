-- Gives the record of a server's sweeps.
--
-- KEYS: the hash "swept".
-- ARGV: none.
-- Reply: the server's life; the life in which it was swept, or ''; the id of its data, or ''.
-- One step: the record has to be that of the process whose life is given.
-- use: by_effects, database_0, life, field_of
return {life(), field_of('swept'), field_of('data')}
