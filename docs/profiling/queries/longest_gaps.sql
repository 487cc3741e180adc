-- What was the host doing while the device did nothing? The ten longest gaps between work of the device; for each thread that has
-- ranges of its own in it, the innermost range that was open when the gap was half over, and the CUDA call, if it was in one.
with
work as (
  select start, end from CUPTI_ACTIVITY_KIND_KERNEL
  union all select start, end from CUPTI_ACTIVITY_KIND_MEMCPY
  union all select start, end from CUPTI_ACTIVITY_KIND_MEMSET
),
gaps as (
  select busy_until as start, start as end, (busy_until + start) / 2 as middle from (
    select start, max(end) over (order by start rows between unbounded preceding and 1 preceding) as busy_until from work
  ) where busy_until < start
  order by start - busy_until desc limit 10
),
open_ranges as (
  select gaps.start, gaps.end, gaps.middle, globalTid, coalesce(text, value) as name, coalesce(uint64Value, int64Value) as payload,
    row_number() over (partition by gaps.start, globalTid order by NVTX_EVENTS.start desc) as depth
  from gaps join NVTX_EVENTS on NVTX_EVENTS.start <= middle and NVTX_EVENTS.end >= middle
  left join StringIds on StringIds.id = textId
)
select
  round(open_ranges.start / 1e6, 3) as at_ms, round((open_ranges.end - open_ranges.start) / 1e6, 3) as gap_ms,
  coalesce(thread_names.value, 'thread ' || (open_ranges.globalTid & 0xffffff)) as thread, name as range, payload,
  call_names.value as call
from open_ranges
left join ThreadNames on ThreadNames.globalTid = open_ranges.globalTid
left join StringIds as thread_names on thread_names.id = ThreadNames.nameId
left join CUPTI_ACTIVITY_KIND_RUNTIME as calls
  on calls.globalTid = open_ranges.globalTid and calls.start <= middle and calls.end >= middle
left join StringIds as call_names on call_names.id = calls.nameId
where depth = 1
group by open_ranges.start, open_ranges.globalTid
order by open_ranges.end - open_ranges.start desc, at_ms, thread;
