-- Which CUDA calls hold the host up in its steps? Calls within the ranges `step` or `request`, without launches: how many a step, and how long they
-- took. A call that waits (cudaStreamSynchronize, cudaMemcpy, cudaFree ...) takes as long as the device needs.
with
steps as (
  select NVTX_EVENTS.start, NVTX_EVENTS.end, globalTid
  from NVTX_EVENTS left join StringIds on StringIds.id = textId
  where coalesce(text, value) in ('step', 'request') and NVTX_EVENTS.end is not null
)
select
  value as call, round(1.0 * count(*) / (select count(*) from steps), 2) as a_step, round(sum(calls.end - calls.start) / 1e6, 3) as ms,
  round(max(calls.end - calls.start) / 1e6, 3) as longest_ms,
  round(100.0 * sum(calls.end - calls.start) / (select sum(end - start) from steps), 1) as percent_of_steps
from steps
join CUPTI_ACTIVITY_KIND_RUNTIME as calls
  on calls.globalTid = steps.globalTid and calls.start >= steps.start and calls.end <= steps.end
join StringIds on StringIds.id = calls.nameId
where value not like 'cudaLaunchKernel%' and value not like 'cuLaunchKernel%'
group by value
order by sum(calls.end - calls.start) desc
limit 15;
