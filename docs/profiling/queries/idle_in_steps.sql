-- How long does the device do nothing in each step? A step on the device begins with the first work that is launched within a range
-- `step` (inference: `request`), and ends where the next one begins. Milliseconds.
with
work as (
  select start, end, correlationId from CUPTI_ACTIVITY_KIND_KERNEL
  union all select start, end, correlationId from CUPTI_ACTIVITY_KIND_MEMCPY
  union all select start, end, correlationId from CUPTI_ACTIVITY_KIND_MEMSET
),
gaps as (
  select busy_until as start, start as end from (
    select start, max(end) over (order by start rows between unbounded preceding and 1 preceding) as busy_until from work
  ) where busy_until < start
),
steps as (
  select NVTX_EVENTS.start, NVTX_EVENTS.end, globalTid, coalesce(uint64Value, int64Value) as payload
  from NVTX_EVENTS left join StringIds on StringIds.id = textId
  where coalesce(text, value) in ('step', 'request') and NVTX_EVENTS.end is not null
),
device_steps as (
  select payload, start, lead(start, 1, (select max(end) from work)) over (order by start) as end from (
    select steps.payload, min(work.start) as start
    from steps
    join CUPTI_ACTIVITY_KIND_RUNTIME as calls
      on calls.globalTid = steps.globalTid and calls.start >= steps.start and calls.end <= steps.end
    join work on work.correlationId = calls.correlationId
    group by steps.start
  )
)
select
  payload as step,
  round((device_steps.end - device_steps.start) / 1e6, 3) as ms,
  round(coalesce(sum(min(gaps.end, device_steps.end) - max(gaps.start, device_steps.start)), 0) / 1e6, 3) as idle_ms,
  round(100.0 * coalesce(sum(min(gaps.end, device_steps.end) - max(gaps.start, device_steps.start)), 0)
    / (device_steps.end - device_steps.start), 1) as idle_percent,
  round(coalesce(max(min(gaps.end, device_steps.end) - max(gaps.start, device_steps.start)), 0) / 1e6, 3) as longest_gap_ms
from device_steps left join gaps on gaps.start < device_steps.end and gaps.end > device_steps.start
group by device_steps.start
order by device_steps.start;
