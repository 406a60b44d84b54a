#include "doctor/doctor_ranks.h"

#include "base/launcher.h"
#include "comm/comm.h"
#include "comm/comm_measure.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/measure.h"
#include "doctor/rank_report.h"
#include "exec/measure_products.h"
#include "kernel/cpu/table.h"

#include <omp.h>
#include <unistd.h>

/* Measures all ranks at the same time, as in a run, so that contention between ranks is visible. */
static weft_status measure_here(weft_comm *comm, weft_rank_report *own)
{
    weft_link_speed inside, between;
    *own = (weft_rank_report){.location = weft_rank_location_here(),
                              .started = weft_launcher_rank(),
                              .threads = omp_get_max_threads()};
    gethostname(own->host, sizeof own->host - 1);
    WEFT_TRY(weft_comm_barrier(comm));
    WEFT_TRY(weft_measure_gemm(&weft_backend_cpu, WEFT_F32, 0.7, &own->value[WEFT_RANK_GEMM]));
    WEFT_TRY(weft_comm_barrier(comm));
    WEFT_TRY(weft_measure_memory(128 << 20, 0.5, &own->value[WEFT_RANK_MEMORY]));
    WEFT_TRY(weft_comm_measure_links(comm, &inside, &between));
    own->value[WEFT_RANK_INSIDE] = inside.bytes_per_second;
    own->value[WEFT_RANK_BETWEEN] = between.bytes_per_second;
    own->value[WEFT_RANK_INSIDE_LATENCY] = inside.latency;
    own->value[WEFT_RANK_BETWEEN_LATENCY] = between.latency;
    return WEFT_OK;
}

weft_status weft_doctor_ranks(const weft_parallel *parallel)
{
    weft_status_code status = WEFT_OK;
    weft_mesh mesh;
    weft_comm *comm = NULL;
    weft_rank_report own, *all = NULL;
    WEFT_GO(weft_comm_open_mpi(&comm));
    const int ranks = weft_comm_ranks(comm);
    WEFT_GO(weft_parallel_mesh(parallel, ranks, "--parallel", &mesh));
    WEFT_GO(WEFT_NEW(all, ranks, "reports of %d ranks", ranks));
    WEFT_GO(measure_here(comm, &own));
    WEFT_GO(weft_comm_all_gather(comm, &own, sizeof own, all));
    if (weft_comm_rank(comm) == 0)
        WEFT_GO(weft_rank_reports_print(all, ranks, &mesh, stdout));
out:
    if (status != WEFT_OK)
        weft_comm_abort(comm);
    weft_comm_free(comm);
    weft_free(all);
    return status;
}
