/*
 * nccl_facts.h - assertions about the layouts and numbers of nccl_abi.h, or of the vendor's nccl.h
 * of 2.28
 *
 * Included by nccl_layer.h after nccl_abi.h, so that the library cannot be compiled with a wrong
 * layout, and by tests/scripts/check_nccl.sh after the vendor's header, where that header is
 * installed. Uses only names that both headers have.
 */
#define AT(member, offset) \
	_Static_assert(offsetof(ncclConfig_t, member) == (offset), "ncclConfig_t." #member)
AT(size, 0);
AT(magic, 8);
AT(version, 12);
AT(blocking, 16);
AT(cgaClusterSize, 20);
AT(minCTAs, 24);
AT(maxCTAs, 28);
AT(netName, 32);
AT(splitShare, 40);
AT(trafficClass, 44);
AT(commName, 48);
AT(collnetEnable, 56);
AT(CTAPolicy, 60);
AT(shrinkShare, 64);
AT(nvlsCTAs, 68);
AT(nChannelsPerNetPeer, 72);
AT(nvlinkCentricSched, 76);
#undef AT

#define SAME(a, b) _Static_assert((a) == (b), #a " is not " #b)
SAME(sizeof(ncclConfig_t), 80);
SAME(sizeof(ncclUniqueId), 128);
SAME(sizeof(ncclSimInfo_t), 24);
SAME(offsetof(ncclSimInfo_t, estimatedTime), 16);
SAME(sizeof(ncclResult_t), 4);
SAME(sizeof(ncclDataType_t), 4);
SAME(sizeof(ncclRedOp_t), 4);
SAME(NCCL_VERSION_CODE, 22809);
SAME(ncclUnhandledCudaError, 1);
SAME(ncclSystemError, 2);
SAME(ncclInternalError, 3);
SAME(ncclInvalidArgument, 4);
SAME(ncclInvalidUsage, 5);
SAME(ncclRemoteError, 6);
SAME(ncclInProgress, 7);
SAME(ncclNumResults, 8);
SAME(ncclInt8, 0);
SAME(ncclChar, 0);
SAME(ncclUint8, 1);
SAME(ncclInt32, 2);
SAME(ncclUint32, 3);
SAME(ncclInt64, 4);
SAME(ncclUint64, 5);
SAME(ncclFloat16, 6);
SAME(ncclFloat32, 7);
SAME(ncclFloat64, 8);
SAME(ncclBfloat16, 9);
SAME(ncclFloat8e4m3, 10);
SAME(ncclFloat8e5m2, 11);
SAME(ncclNumTypes, 12);
SAME(ncclSum, 0);
SAME(ncclProd, 1);
SAME(ncclMax, 2);
SAME(ncclMin, 3);
SAME(ncclAvg, 4);
SAME(ncclNumOps, 5);
SAME(ncclMaxRedOp, 0x7fffffff);
SAME(ncclScalarDevice, 0);
SAME(ncclScalarHostImmediate, 1);
SAME(NCCL_SPLIT_NOCOLOR, -1);
SAME(NCCL_SHRINK_ABORT, 1);
SAME(NCCL_WIN_DEFAULT, 0);
SAME(NCCL_WIN_COLL_SYMMETRIC, 1);
SAME(NCCL_CONFIG_UNDEF_INT, INT_MIN);
#undef SAME
