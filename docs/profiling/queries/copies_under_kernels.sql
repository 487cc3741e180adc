-- Which copies are there, how fast are they, and do they run beside kernels? GB/s of pageable memory are a fraction of those of
-- page-locked memory; under_kernels is the part of their time with a kernel beside them.
with
busy as (  -- intervals of kernels, those that overlap as one
  select min(start) as start, max(end) as end from (
    select start, end, sum(begins) over (order by start, end) as island from (
      select start, end,
        start > coalesce(max(end) over (order by start, end rows between unbounded preceding and 1 preceding), -1) as begins
      from CUPTI_ACTIVITY_KIND_KERNEL
    )
  ) group by island
),
copies as (
  select rowid as copy, * from CUPTI_ACTIVITY_KIND_MEMCPY
),
hidden as (
  select copy, sum(min(busy.end, copies.end) - max(busy.start, copies.start)) as beside
  from copies join busy on busy.start < copies.end and busy.end > copies.start
  group by copy
)
select
  directions.label as direction, sources.label as from_memory, targets.label as to_memory, count(*) as copies,
  round(sum(bytes) / 1e6, 3) as megabytes, round(sum(end - start) / 1e6, 3) as ms,
  round(1.0 * sum(bytes) / sum(end - start), 2) as gigabytes_per_second,
  round(100.0 * coalesce(sum(beside), 0) / sum(end - start), 1) as under_kernels_percent
from copies left join hidden using (copy)
left join ENUM_CUDA_MEMCPY_OPER as directions on directions.id = copyKind
left join ENUM_CUDA_MEM_KIND as sources on sources.id = srcKind
left join ENUM_CUDA_MEM_KIND as targets on targets.id = dstKind
group by copyKind, srcKind, dstKind
order by sum(end - start) desc;
