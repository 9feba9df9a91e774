-- A vote is the token with its edition behind a brace: `token{7}`. An offer has the edition 0. Without a brace it is of another kind of
-- client.
local function parts(vote)
  local token, edition = string.match(vote, '^([^{]*){(%d+)}$')
  return token or vote, tonumber(edition)
end

