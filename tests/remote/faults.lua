-- SPDX-License-Identifier: Apache-2.0
--
-- /fault/WHEN/FAULT/FILE: the file with a fault, as fault_test.cpp asks for it. WHEN is `once`, at the first request for
-- each range, which its last byte tells; or `always`, but not at the first byte alone, by which a test opens a file.

local when, fault, name = string.match(ngx.var.uri, "^/fault/(%a+)/([%w_]+)/(.+)$")
local first, last = string.match(ngx.var.http_range or "", "bytes=(%d+)-(%d+)")
first, last = tonumber(first), tonumber(last)
local file = io.open(ngx.config.prefix() .. "files/" .. name, "rb")
if not file then return ngx.exit(404) end
local total = file:seek("end")
local times = ngx.shared.counts:incr(ngx.var.uri .. (last or "whole"), 1, 0)

file:seek("set", first or 0)
local bytes = file:read(math.min(last or total, total - 1) - (first or 0) + 1) or ""
file:close()
local range = first and string.format("bytes %d-%d/%d", first, first + #bytes - 1, total)
local half = string.sub(bytes, 1, math.ceil(#bytes / 2))

-- What begins an answer that is right.
local function begin()
  ngx.status = range and 206 or 200
  ngx.header["Content-Range"] = range
  ngx.header["Content-Length"] = #bytes
  ngx.header["ETag"] = ngx.header["ETag"] or '"1"'
end
local function end_connection()
  ngx.flush(true)
  ngx.exit(444)
end
-- An answer that nginx does not look at; then the connection ends.
local function raw(...)
  local socket = ngx.req.socket(true)
  socket:send({ ... })
end
local function head()
  return "HTTP/1.1 " .. (range and "206 Partial\r\nContent-Range: " .. range or "200 OK") ..
    '\r\nConnection: close\r\nETag: "1"\r\nContent-Length: ' .. #bytes .. "\r\n"
end
local function status(number)
  return function()
    ngx.status = number
    ngx.print("no")
  end
end

local faults = {
  status_404 = status(404),
  status_408 = status(408),
  status_429 = status(429),
  status_500 = status(500),
  status_503 = status(503),
  not_modified = function() ngx.exit(304) end,
  denied = function()
    ngx.status = 403
    ngx.print("<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Not for you.</Message></Error>")
  end,
  closed = function() ngx.exit(444) end,
  cut = function()
    begin()
    ngx.print(half)
    end_connection()
  end,
  cut_head = function() raw("HTTP/1.1 206 Partial\r\nContent-Ra") end,
  hung = function() ngx.sleep(60) end,
  hung_body = function()
    begin()
    ngx.print(half)
    ngx.flush(true)
    ngx.sleep(60)
  end,
  slow = function()
    begin()
    for i = 1, math.min(#bytes, 600) do
      ngx.print(string.sub(bytes, i, i))
      if not ngx.flush(true) then return end
      ngx.sleep(0.1)
    end
  end,
  other_range = function()
    ngx.status = 206
    ngx.header["ETag"] = '"1"'
    ngx.header["Content-Range"] = "bytes 1-1/" .. total
    ngx.print("x")
  end,
  several_ranges = function()
    ngx.status = 206
    ngx.header["Content-Type"] = "multipart/byteranges; boundary=1"
    ngx.print("--1\r\n\r\n\r\n--1--")
  end,
  too_long = function()
    begin()
    ngx.header["Content-Length"] = nil
    ngx.print(bytes, "more")
  end,
  changed = function()
    ngx.header["ETag"] = '"' .. ngx.shared.counts:incr("etag", 1, 1) .. '"'
    begin()
    ngx.print(bytes)
  end,
  no_ranges = function()
    ngx.header["ETag"] = '"1"'
    ngx.header["Content-Length"] = total
    ngx.print(string.rep("x", total))
  end,
  garbage = function() raw(string.rep("garbage\r\n", 100)) end,
  huge_head = function() raw(head(), string.rep("X-Long: " .. string.rep("x", 1000) .. "\r\n", 2000), "\r\n", bytes) end,
  folded = function()
    local folded = string.gsub(head(), "\r\n", "\r\n folded: x\r\n", 1)
    raw(folded, "\r\n", bytes)
  end,
  bad_chunks = function() raw("HTTP/1.1 206 Partial\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n") end,
  early_hints = function() raw("HTTP/1.1 103 Early Hints\r\nETag: \"other\"\r\n\r\n", head(), "\r\n", bytes) end,
  wrong_checksum = function()
    ngx.header["x-goog-hash"] = "crc32c=AAAAAA==,md5=AAAAAAAAAAAAAAAAAAAAAA=="
    begin()
    ngx.print(bytes)
  end,
  redirect_loop = function() ngx.redirect(ngx.var.uri, 302) end,
}

local strikes = when == "once" and times == 1 or when == "always" and not (first == 0 and last == 0)
if strikes then return faults[fault]() end
begin()
ngx.print(bytes)
