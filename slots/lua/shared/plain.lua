-- A server's error as it says it to clients. Redis 6 puts the place in the script before it.
local function plain(error)
  return (string.gsub(error, '^@user_script: ?%d*:? ?%-?', ''))
end
