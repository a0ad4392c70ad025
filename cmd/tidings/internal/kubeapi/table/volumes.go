package table

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const storage = "storage.k8s.io"

func volumes() []kind {
	return []kind{
		{group: "", kind: "PersistentVolume", columns: []column{
			name,
			text("Capacity", doc(corev1.PersistentVolumeSpec{}, "capacity"), at("spec.capacity.storage", "0")),
			text("Access Modes", doc(corev1.PersistentVolumeSpec{}, "accessModes"), func(o *object) any { return accessModes(o, "spec.accessModes") }),
			text("Reclaim Policy", doc(corev1.PersistentVolumeSpec{}, "persistentVolumeReclaimPolicy"), at("spec.persistentVolumeReclaimPolicy")),
			text("Status", doc(corev1.PersistentVolumeStatus{}, "phase"), volumePhase),
			text("Claim", doc(corev1.PersistentVolumeSpec{}, "claimRef"), func(o *object) any {
				if !is(o.get("spec.claimRef")) {
					return ""
				}
				return o.get("spec.claimRef.namespace").Str + "/" + o.get("spec.claimRef.name").Str
			}),
			text("StorageClass", "StorageClass of the pv", storageClass),
			text("VolumeAttributesClass", "VolumeAttributesClass of the pv", at("spec.volumeAttributesClassName", "<unset>")),
			text("Reason", doc(corev1.PersistentVolumeStatus{}, "reason"), at("status.reason")),
			age,
			wide(text("VolumeMode", doc(corev1.PersistentVolumeSpec{}, "volumeMode"), at("spec.volumeMode", "<unset>"))),
		}},
		{group: "", kind: "PersistentVolumeClaim", columns: []column{
			name,
			text("Status", doc(corev1.PersistentVolumeClaimStatus{}, "phase"), volumePhase),
			text("Volume", doc(corev1.PersistentVolumeClaimSpec{}, "volumeName"), at("spec.volumeName")),
			text("Capacity", doc(corev1.PersistentVolumeClaimStatus{}, "capacity"), ifBound(at("status.capacity.storage", "0"))),
			text("Access Modes", doc(corev1.PersistentVolumeClaimStatus{}, "accessModes"), ifBound(func(o *object) any { return accessModes(o, "status.accessModes") })),
			text("StorageClass", "StorageClass of the pvc", storageClass),
			text("VolumeAttributesClass", "VolumeAttributesClass of the pvc", at("spec.volumeAttributesClassName", "<unset>")),
			age,
			wide(text("VolumeMode", doc(corev1.PersistentVolumeClaimSpec{}, "volumeMode"), at("spec.volumeMode", "<unset>"))),
		}},
		{group: storage, kind: "StorageClass", columns: []column{
			nameOrDefault("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"),
			text("Provisioner", doc(storagev1.StorageClass{}, "provisioner"), at("provisioner")),
			text("ReclaimPolicy", doc(storagev1.StorageClass{}, "reclaimPolicy"), at("reclaimPolicy", "Delete")),
			text("VolumeBindingMode", doc(storagev1.StorageClass{}, "volumeBindingMode"), at("volumeBindingMode", "Immediate")),
			text("AllowVolumeExpansion", doc(storagev1.StorageClass{}, "allowVolumeExpansion"), flag("allowVolumeExpansion", false)),
			age,
		}},
		{group: storage, kind: "VolumeAttributesClass", columns: []column{
			name, text("DriverName", doc(storagev1.VolumeAttributesClass{}, "driverName"), at("driverName")), age,
		}},
		{group: storage, kind: "VolumeAttachment", columns: []column{
			name,
			withFormat("name", text("Attacher", doc(storagev1.VolumeAttachmentSpec{}, "attacher"), at("spec.attacher"))),
			text("PV", doc(storagev1.VolumeAttachmentSource{}, "persistentVolumeName"), at("spec.source.persistentVolumeName")),
			text("Node", doc(storagev1.VolumeAttachmentSpec{}, "nodeName"), at("spec.nodeName")),
			boolean("Attached", doc(storagev1.VolumeAttachmentStatus{}, "attached"), flag("status.attached", false)),
			age,
		}},
		{group: storage, kind: "CSINode", columns: []column{
			name, integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node", size("spec.drivers")), age,
		}},
		{group: storage, kind: "CSIDriver", columns: []column{
			name,
			boolean("AttachRequired", doc(storagev1.CSIDriverSpec{}, "attachRequired"), flag("spec.attachRequired", true)),
			boolean("PodInfoOnMount", doc(storagev1.CSIDriverSpec{}, "podInfoOnMount"), flag("spec.podInfoOnMount", false)),
			boolean("StorageCapacity", doc(storagev1.CSIDriverSpec{}, "storageCapacity"), flag("spec.storageCapacity", false)),
			text("TokenRequests", doc(storagev1.CSIDriverSpec{}, "tokenRequests"), func(o *object) any {
				if requests := o.get("spec.tokenRequests"); is(requests) {
					return strings.Join(each(requests, "audience"), ",")
				}
				return "<unset>"
			}),
			boolean("RequiresRepublish", doc(storagev1.CSIDriverSpec{}, "requiresRepublish"), flag("spec.requiresRepublish", false)),
			text("Modes", doc(storagev1.CSIDriverSpec{}, "volumeLifecycleModes"), func(o *object) any {
				return cmp.Or(strings.Join(texts(o.get("spec.volumeLifecycleModes")), ","), "<none>")
			}),
			age,
		}},
	}
}

func withFormat(format string, c column) column {
	c.Format = format
	return c
}

// nameOrDefault is the name column, with a mark if an annotation makes the object the
// default.
func nameOrDefault(annotations ...string) column {
	c := name
	c.cell = func(o *object) any {
		for _, key := range annotations {
			if value, _ := o.annotation(key); value == "true" {
				return o.get("metadata.name").Str + " (default)"
			}
		}
		return str(o.get("metadata.name"))
	}
	return c
}

func volumePhase(o *object) any {
	if o.deleted() {
		return "Terminating"
	}
	return str(o.get("status.phase"))
}

func storageClass(o *object) any {
	if class, ok := o.annotation(corev1.BetaStorageClassAnnotation); ok {
		return class
	}
	return str(o.get("spec.storageClassName"))
}

func ifBound(cell func(*object) any) func(*object) any {
	return func(o *object) any {
		if o.get("spec.volumeName").Str == "" {
			return ""
		}
		return cell(o)
	}
}

// accessModes returns the abbreviated access modes, in a fixed order.
func accessModes(o *object, path string) string {
	modes := texts(o.get(path))
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, string(m.mode)) {
			out = append(out, m.short)
		}
	}
	return strings.Join(out, ",")
}
