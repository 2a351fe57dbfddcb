! mpi_fortran.F90 - a program of Fortran, for mpi.sh: collectives in place and not, which start and complete apart, too
!
! No header of MPI is needed: common blocks and numbers are those of Open MPI, or of MPICH and Intel MPI. Prints "right".
program mpi_fortran
  implicit none
#ifdef TUTTI_MPI_OMPI
  integer, parameter :: world = 0, ints = 7, doubles = 17, add = 3
  integer :: in_place
  common /mpi_fortran_in_place/ in_place
#else
  integer, parameter :: world = int(z'44000000'), ints = int(z'4c00041b'), doubles = int(z'4c00081f'), add = int(z'58000003')
  integer :: bottom, in_place, ignored(5)
  common /mpipriv1/ bottom, in_place, ignored
#endif
  integer, parameter :: most = 1000
  integer :: me, n, i, total, request, status(8), rc, wrong = 0
  integer :: a(most), b(most)
  double precision :: x(most)
  external :: mpi_init, mpi_comm_rank, mpi_comm_size, mpi_allreduce, mpi_reduce, mpi_allgather, mpi_bcast
  external :: mpi_reduce_scatter_block, mpi_alltoall, mpi_iallreduce, mpi_wait, mpi_abort, mpi_finalize

  call mpi_init(rc)
  call mpi_comm_rank(world, me, rc)
  call mpi_comm_size(world, n, rc)
  total = n * (n + 1) / 2

  a = me + 1
  call mpi_allreduce(a, b, most, ints, add, world, rc)
  call want(all(b == total), 'allreduce')
  call mpi_allreduce(in_place, a, most, ints, add, world, rc)
  call want(all(a == total), 'allreduce in place')
  x = me + 1
  call mpi_allreduce(in_place, x, most, doubles, add, world, rc)
  call want(all(x == total), 'allreduce of double precision in place')

  a = me + 1
  if (me == n - 1) then
    call mpi_reduce(in_place, a, most, ints, add, n - 1, world, rc)
    call want(all(a == total), 'reduce in place')
  else
    call mpi_reduce(a, b, most, ints, add, n - 1, world, rc)
  end if
  call mpi_bcast(a, most, ints, n - 1, world, rc)
  call want(all(a == total), 'bcast')

  a = -1
  a(me + 1) = me
  call mpi_allgather(in_place, 0, ints, a, 1, ints, world, rc)
  call want(all(a(1:n) == [(i, i = 0, n - 1)]), 'allgather in place')
  a(1:n) = [(10 * me + i, i = 0, n - 1)]
  call mpi_alltoall(in_place, 0, ints, a, 1, ints, world, rc)
  call want(all(a(1:n) == [(10 * i + me, i = 0, n - 1)]), 'alltoall in place')
  a(1:n) = me + 1
  call mpi_reduce_scatter_block(in_place, a, 1, ints, add, world, rc)
  call want(a(1) == total, 'reduce_scatter_block in place')

  a = me + 1
  call mpi_iallreduce(in_place, a, most, ints, add, world, request, rc)
  call mpi_wait(request, status, rc)
  call want(all(a == total), 'iallreduce in place')

  if (wrong > 0) call mpi_abort(world, 1, rc)
  call mpi_finalize(rc)
  print '(a)', 'right'

contains

  subroutine want(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what

    if (holds) return
    print '(a,i0,2a)', 'rank ', me, ': not right: ', what
    wrong = wrong + 1
  end subroutine
end program
