-- How long does a batch lie in device memory before a kernel runs that could use it? From the end of the last copy that is launched within
-- the range `copy` (the library's, whose payload is the batch) or `copy batch` (a rung's) to the first kernel of the `step` (or `request`) with
-- the same payload: within one epoch. Near 0 the step waits for its batch; milliseconds mean that the copy was hidden.
with
ranges as (
  select coalesce(text, value) as name, NVTX_EVENTS.start, NVTX_EVENTS.end, globalTid, coalesce(uint64Value, int64Value) as payload
  from NVTX_EVENTS left join StringIds on StringIds.id = textId
  where NVTX_EVENTS.end is not null and coalesce(text, value) in ('copy', 'copy batch', 'step', 'request')
),
calls as (
  select name, payload, ranges.start as range_start, correlationId
  from ranges join CUPTI_ACTIVITY_KIND_RUNTIME as calls
    on calls.globalTid = ranges.globalTid and calls.start >= ranges.start and calls.end <= ranges.end
),
copies as (
  select payload, min(copies.start) as start, max(copies.end) as end, sum(bytes) as bytes
  from calls join CUPTI_ACTIVITY_KIND_MEMCPY as copies using (correlationId)
  where name in ('copy', 'copy batch') and copyKind = 1
  group by range_start, payload
),
uses as (
  select payload, kernels.start as start
  from calls join CUPTI_ACTIVITY_KIND_KERNEL as kernels using (correlationId)
  where name in ('step', 'request')
)
select
  copies.payload as batch,
  round(copies.bytes / 1e6, 3) as megabytes,
  round((copies.end - copies.start) / 1e6, 3) as copy_ms,
  round((min(uses.start) - copies.end) / 1e6, 3) as copy_to_use_ms
from copies join uses on uses.payload = copies.payload and uses.start >= copies.end
group by copies.start
order by copies.start;
