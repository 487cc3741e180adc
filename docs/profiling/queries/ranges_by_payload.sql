-- Which step, batch or layer takes long? Ranges by name and payload: how often, how long in all, and how much longer than the median
-- of their name. The twenty that lost most come first.
with
ranges as (
  select coalesce(text, value) as name, (NVTX_EVENTS.end - NVTX_EVENTS.start) / 1e6 as ms,
    coalesce(uint64Value, int64Value, uint32Value, int32Value, doubleValue, floatValue) as payload
  from NVTX_EVENTS left join StringIds on StringIds.id = textId
  where NVTX_EVENTS.end is not null
),
ordered as (
  select *, row_number() over (partition by name order by ms) as place, count(*) over (partition by name) as number from ranges
),
medians as (
  select name, avg(ms) as median from ordered where place in ((number + 1) / 2, (number + 2) / 2) group by name
)
select
  name, payload, count(*) as ranges, round(sum(ms), 3) as ms, round(max(ms), 3) as longest_ms, round(median, 3) as median_ms,
  round(sum(ms - median), 3) as over_median_ms
from ranges join medians using (name)
group by name, payload
order by sum(ms - median) desc, name, payload
limit 20;
