-- Include: whether a tenant of a fair queue is noisy. core/fair.py has the same rule.
local function is_noisy(held, in_flight) return held >= 30 and held * 10 > in_flight end
