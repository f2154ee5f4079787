local function starts_with(text, prefix)
  return string.sub(text, 1, #prefix) == prefix
end
