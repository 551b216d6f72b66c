-- Sends the requests of a file in the order that the second argument names. In the file each request follows its length.
local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long us; } timeval; int gettimeofday(timeval *, void *);")

local requests, spread, sums = {}, "even", {}
local asked, began = -1, 0
elapsed = 0 -- seconds, if all requests were sent before the end

local function now()
  local t = ffi.new("timeval")
  ffi.C.gettimeofday(t, nil)
  return tonumber(t.s) + tonumber(t.us) / 1e6
end

function setup(thread) only = thread end

function init(args)
  local file = assert(io.open(args[1], "rb"))
  while true do
    local length = file:read("*n")
    if not length then break end
    file:read(1)
    requests[#requests + 1] = file:read(length)
  end
  file:close()
  spread = args[2]
  math.randomseed(20)
  if spread == "zipf" then
    local sum = 0
    for k = 1, #requests do
      sum = sum + 1 / k ^ 1.1
      sums[k] = sum
    end
  end
end

local function drawn()
  local at, low, high = math.random() * sums[#sums], 1, #sums
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sums[middle] < at then low = middle + 1 else high = middle end
  end
  return low
end

function request()
  asked = asked + 1
  if spread == "even" then return requests[math.random(#requests)] end
  if spread == "zipf" then return requests[drawn()] end
  if asked <= 1 then began = now() end -- wrk asks for one request that it does not send
  if asked > #requests then
    if elapsed == 0 then elapsed = now() - began end
    wrk.thread:stop()
  end
  return requests[math.max(1, math.min(asked, #requests))]
end

function done(summary, latency)
  local seconds = only:get("elapsed")
  if seconds == 0 then seconds = summary.duration / 1e6 end
  local e = summary.errors
  io.write(string.format('\nresult {"requests": %d, "seconds": %.6f, "median": %.1f, "p99": %.1f, "refused": %d, "broken": %d}\n',
    summary.requests, seconds, latency:percentile(50), latency:percentile(99), e.status, e.connect + e.read + e.write + e.timeout))
end
